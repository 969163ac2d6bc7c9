package main

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/foreign"
	"github.com/tensorcache/tensorcache/internal/safetensors"
	"github.com/tensorcache/tensorcache/pages/model"
)

// opened is a model that C code holds.
type opened struct {
	mu    sync.RWMutex // held for reading by reads
	model *model.Model
}

//export tcgo_model_open
func tcgo_model_open(path *C.char, to *C.uintptr_t) status {
	return call(func() error {
		m, err := model.Open(C.GoString(path))
		if err != nil {
			return as(C.TC_ERROR_FILE, err)
		}
		*to = C.uintptr_t(models.add(&opened{model: m}))
		return nil
	})
}

//export tcgo_model_close
func tcgo_model_close(h C.uintptr_t) {
	if m, ok := models.remove(handle(h)); ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.model.Close()
	}
}

// tensorInfo is what tc_model_json says of a tensor.
type tensorInfo struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
	File  int    `json:"file"`
}

func (m *opened) json(to **C.char) error {
	type fileInfo struct {
		Name     string            `json:"name"`
		Metadata map[string]string `json:"metadata"`
	}
	info := struct {
		Tensors []tensorInfo   `json:"tensors"`
		Named   map[string]int `json:"named"`
		Files   []fileInfo     `json:"files"`
		Hash    string         `json:"hash,omitempty"`
		Base    *model.Base    `json:"base,omitempty"`
		// Of models whose tables have what is read, without a base.
		Folders []string      `json:"folders,omitempty"`
		Places  []model.Place `json:"places,omitempty"`
	}{Tensors: []tensorInfo{}, Files: []fileInfo{}}
	var err error
	if info.Named, err = m.model.Named(); err != nil {
		return err
	}
	for _, t := range m.model.Tensors() {
		info.Tensors = append(info.Tensors, tensorInfo{t.Name, t.Stored, append([]int{}, t.Shape...), t.Bytes(), t.File})
	}
	for _, f := range m.model.Files() {
		one := fileInfo{Name: f.Name}
		if f.Header != nil {
			if one.Metadata, err = f.Header.Metadata(); err != nil {
				return err
			}
		}
		info.Files = append(info.Files, one)
	}
	if m.model.Hash() != (model.Hash{}) {
		info.Hash, info.Base = m.model.Hash().String(), m.model.Base()
	}
	info.Folders, info.Places = m.model.Places()
	return giveJSON(info, to)
}

// partsOf returns the parts of an array in C's memory.
func partsOf(parts *C.tc_model_part, count C.int32_t) ([]C.tc_model_part, error) {
	if count < 0 || count > 0 && parts == nil {
		return nil, argument("count (%d) must be the number of parts (%p)", count, parts)
	}
	all := unsafe.Slice(parts, count)
	for i, p := range all {
		if p.bytes < 0 || p.bytes > 0 && p.memory == nil {
			return nil, argument("part %d: bytes (%d) must be the length of memory (%p)", i, p.bytes, p.memory)
		}
	}
	return all, nil
}

func (m *opened) read(parts *C.tc_model_part, count C.int32_t) error {
	all, err := partsOf(parts, count)
	if err != nil {
		return err
	}
	wants := make([]model.Want, len(all))
	for i, p := range all {
		wants[i] = model.Want{Tensor: int(p.tensor), At: int64(p.at), Into: unsafe.Slice((*byte)(p.memory), p.bytes)}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return as(C.TC_ERROR_FILE, m.model.Read(context.Background(), wants))
}

//export tcgo_model_save
func tcgo_model_save(path, header *C.char, parts *C.tc_model_part, count C.int32_t, config *C.char) status {
	return call(func() error {
		all, err := partsOf(parts, count)
		if err != nil {
			return err
		}
		c := struct {
			Name          string `json:"name"`
			Codec         string `json:"codec"`
			Base          string `json:"base"`
			KeepBaseEvery int    `json:"keep_base_every"`
		}{}
		if given := C.GoString(config); given != "" {
			decode := json.NewDecoder(strings.NewReader(given))
			decode.DisallowUnknownFields()
			if err := decode.Decode(&c); err != nil {
				return argument("config_json: %w", err)
			}
		}
		text := []byte(C.GoString(header))
		h, err := safetensors.ParseHeader(text)
		if err != nil {
			return argument("header: %w", err)
		}
		if len(h.Entries) != len(all) {
			return argument("count (%d) must be the %d tensors of the header", len(all), len(h.Entries))
		}
		from := make(scattered, 0, len(all))
		for i, e := range h.Entries {
			if int64(all[i].bytes) != e.To-e.From {
				return argument("part %d (%d bytes) must be tensor %q of %d bytes", i, all[i].bytes, e.Name, e.To-e.From)
			}
			if e.To > e.From {
				from = append(from, piece{e.From, unsafe.Slice((*byte)(all[i].memory), all[i].bytes)})
			}
		}
		slices.SortFunc(from, func(a, b piece) int { return cmp.Compare(a.at, b.at) })
		_, err = model.Save(context.Background(), cmp.Or(c.Name, "model.safetensors"), text, from, C.GoString(path), model.PackOptions{Codec: c.Codec, Base: c.Base, KeepEvery: c.KeepBaseEvery})
		return as(C.TC_ERROR_FILE, err)
	})
}

// scattered are the data of a file whose pieces lie anywhere in C's memory.
type scattered []piece

type piece struct {
	at   int64
	data []byte
}

// ReadAt implements io.ReaderAt. Mapped files that have become shorter are an error.
func (s scattered) ReadAt(dst []byte, at int64) (n int, err error) {
	i, exact := slices.BinarySearchFunc(s, at, func(p piece, at int64) int { return cmp.Compare(p.at, at) })
	if !exact {
		i--
	}
	err = foreign.Read(func() {
		for ; i >= 0 && i < len(s) && n < len(dst); i++ {
			if from := at + int64(n) - s[i].at; from < int64(len(s[i].data)) {
				n += copy(dst[n:], s[i].data[from:])
			}
		}
	})
	if err == nil && n < len(dst) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

//export tcgo_compress
func tcgo_compress(t *C.tc_tensor, codec *C.char, blob *C.uintptr_t, bytes C.uintptr_t) status {
	return call(func() error {
		if t.axes < 0 || int(t.axes) > len(t.shape) || t.note < 0 || t.note > 255 || t.reserved != 0 || t.bytes < 0 || t.bytes > 0 && t.data == nil || t.dtype < 0 || t.dtype > C.TC_FLOAT8_E8M0 {
			return argument("tensor: dtype (%d), axes (%d), note (%d), reserved (%d) and bytes (%d) must be as tensorcache.h says", t.dtype, t.axes, t.note, t.reserved, t.bytes)
		}
		if bytes == 0 {
			return argument("bytes (NULL) must not be NULL")
		}
		a := model.Array{DType: dtype.Type(t.dtype), Note: uint8(t.note), Data: unsafe.Slice((*byte)(t.data), t.bytes)}
		for _, n := range t.shape[:t.axes] {
			a.Shape = append(a.Shape, int64(n))
		}
		b, err := model.Compress(a, C.GoString(codec))
		if err != nil {
			return err
		}
		*blob, *(*int64)(pointer(bytes)) = C.uintptr_t(uintptr(C.CBytes(b))), int64(len(b))
		return nil
	})
}

//export tcgo_decompress
func tcgo_decompress(blob C.uintptr_t, bytes C.int64_t, t *C.tc_tensor) status {
	return call(func() error {
		if bytes < 0 || bytes > 0 && blob == 0 {
			return argument("bytes (%d) must be the length of blob", bytes)
		}
		c, err := model.Inspect(unsafe.Slice((*byte)(pointer(blob)), bytes))
		if err != nil {
			return err
		}
		if t.data != nil && int64(t.bytes) != c.Bytes {
			return argument("bytes (%d) must be the %d of the tensor", t.bytes, c.Bytes)
		}
		if len(c.Shape) > len(t.shape) {
			return fmt.Errorf("%w: %d axes", model.ErrNotCompressed, len(c.Shape))
		}
		if t.data != nil {
			return c.Decode(unsafe.Slice((*byte)(t.data), t.bytes))
		}
		t.dtype, t.axes, t.bytes, t.note = C.int32_t(c.DType), C.int32_t(len(c.Shape)), C.int64_t(c.Bytes), C.int32_t(c.Note)
		for i, n := range c.Shape {
			t.shape[i] = C.int64_t(n)
		}
		return nil
	})
}
