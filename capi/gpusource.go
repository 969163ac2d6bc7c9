package main

// #include "bridge.h"
import "C"

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
)

// fromGPU returns a table of rows in the memory of a GPU, which are copied to the host in parts.
func (r *tableRequest) fromGPU() (cache.Table, error) {
	devices, err := cuda.OpenGPUs([]int{int(r.c.gpu)})
	if err != nil {
		return cache.Table{}, as(C.TC_ERROR_DEVICE, err)
	}
	rows, rowBytes := int64(r.c.rows), int64(r.c.row_bytes)
	source := &gpuSource{device: devices[0], memory: device.DeviceBuffer(uint64(uintptr(r.c.data)), rows*rowBytes), rowBytes: rowBytes}
	t, err := cache.FromReader(r.name, r.of, rows, int(rowBytes), source.read, source.close)
	if err != nil {
		return t, errors.Join(err, source.close())
	}
	return t, nil
}

// gpuSource reads the rows of a table from the memory of a GPU.
type gpuSource struct {
	device   device.Device
	memory   device.Buffer
	rowBytes int64

	mu      sync.Mutex
	streams []device.Stream // not in use
}

func (g *gpuSource) read(row int64, dst []byte) error {
	g.mu.Lock()
	var s device.Stream
	if n := len(g.streams); n > 0 {
		s, g.streams = g.streams[n-1], g.streams[:n-1]
	}
	g.mu.Unlock()
	if s == nil {
		var err error
		if s, err = g.device.NewStream(); err != nil {
			return err
		}
	}
	var pinned runtime.Pinner // dst may be Go's memory
	pinned.Pin(unsafe.SliceData(dst))
	defer pinned.Unpin()
	from := row * g.rowBytes
	err := s.Copy(device.HostBuffer(dst), g.memory.Slice(from, from+int64(len(dst))))
	err = errors.Join(err, s.Synchronize())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams = append(g.streams, s)
	return err
}

func (g *gpuSource) close() error {
	for _, s := range g.streams {
		s.Close()
	}
	g.streams = nil
	return g.device.Close()
}
