//go:build linux

package sharetest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
)

// Bytes of the memory that the owner shares. Neither is a whole number of pages.
const (
	deviceBytes = 6<<20 + 1040
	hostBytes   = 5<<20 + 24
)

// pattern is what the owner writes.
func pattern(n int64, seed uint64) []byte {
	b := make([]byte, (n+7)/8*8)
	for i := int64(0); i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], (uint64(i)+seed)*0x9e3779b97f4a7c15)
	}
	return b[:n]
}

func sharerOf(of Backend) (device.Device, device.Sharer, error) {
	d, err := of.Open(os.Getenv(role))
	if err != nil {
		return nil, nil, err
	}
	s, ok := d.(device.Sharer)
	if !ok {
		return nil, nil, errors.New("the device is no Sharer")
	}
	return d, s, nil
}

// own allocates memory, sends it through the socket, and then copies it to and fro until it is killed.
func own(of Backend) error {
	d, s, err := sharerOf(of)
	if err != nil {
		return err
	}
	slab, err := s.AllocShared(deviceBytes, "slab")
	if err != nil {
		return err
	}
	zeros, err := of.Read(d, slab)
	if err != nil || !bytes.Equal(zeros, make([]byte, deviceBytes)) {
		return fmt.Errorf("device memory is not zeroed: %w", err)
	}
	tier, err := s.AllocSharedHost(nil, hostBytes, "host tier")
	if err != nil {
		return err
	}
	if !bytes.Equal(tier.Bytes(), make([]byte, hostBytes)) {
		return errors.New("host memory is not zeroed")
	}
	copy(tier.Bytes(), pattern(hostBytes, 2))
	if err := device.Upload(d, slab, pattern(deviceBytes, 1)); err != nil {
		return err
	}
	var files []*os.File
	for _, b := range []device.Buffer{slab, tier} {
		f, err := s.Export(b)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	if err := send(socketFD, []int64{slab.Size(), tier.Size()}, files); err != nil {
		return err
	}
	fmt.Println("sent")
	own, err := d.Alloc(deviceBytes, "copy")
	if err != nil {
		return err
	}
	stream, err := d.NewStream()
	if err != nil {
		return err
	}
	for {
		for range 8 {
			if err := errors.Join(stream.Copy(own, slab), stream.Copy(slab, own)); err != nil {
				return err
			}
		}
		if err := stream.Synchronize(); err != nil {
			return err
		}
	}
}

// imported is what a reader has received and mapped.
type imported struct {
	d     device.Device
	s     device.Sharer
	sizes []int64
	files []*os.File
	slab  device.Buffer
	tier  device.Buffer
}

func importAll(of Backend) (*imported, error) {
	m := &imported{}
	var err error
	if m.d, m.s, err = sharerOf(of); err != nil {
		return nil, err
	}
	if m.sizes, m.files, err = receive(socketFD); err != nil {
		return nil, err
	}
	return m, m.mapAll()
}

func (m *imported) mapAll() (err error) {
	if m.slab, err = m.s.Import(m.files[0], m.sizes[0], false, "slab"); err != nil {
		return err
	}
	m.tier, err = m.s.ImportHost(m.files[1], m.sizes[1], false, "host tier")
	return err
}

// verify reads everything.
func (m *imported) verify(of Backend) error {
	got, err := of.Read(m.d, m.slab)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, pattern(deviceBytes, 1)) {
		return errors.New("device memory differs")
	}
	if !bytes.Equal(m.tier.Bytes(), pattern(hostBytes, 2)) {
		return errors.New("host memory differs")
	}
	return nil
}

// read maps what the owner has sent and reads it until a line says that the owner is dead, then some more, and maps it a second time.
func read(of Backend) error {
	m, err := importAll(of)
	if err != nil {
		return err
	}
	if err := m.verify(of); err != nil {
		return err
	}
	fmt.Println("read")
	var dead atomic.Bool
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		dead.Store(true)
	}()
	for more := 3; more > 0; {
		if dead.Load() {
			more--
		}
		if err := m.verify(of); err != nil {
			return fmt.Errorf("owner dead: %v: %w", dead.Load(), err)
		}
	}
	slab, tier := m.slab, m.tier
	if err := m.mapAll(); err != nil {
		return fmt.Errorf("imported again: %w", err)
	}
	if m.tier.Addr() != 0 && m.tier.Addr() == tier.Addr() {
		return errors.New("imported again: it has the same address")
	}
	m.d.Free(slab)
	m.d.Free(tier)
	for _, f := range m.files {
		f.Close()
	}
	if err := m.verify(of); err != nil {
		return fmt.Errorf("imported again, first mapping freed and descriptors closed: %w", err)
	}
	m.d.Free(m.slab)
	m.d.Free(m.tier)
	if err := m.d.Close(); err != nil {
		return err
	}
	fmt.Println("whole")
	return nil
}

// write writes to memory that was imported to be read, and says what happened.
func write(of Backend) error {
	m, err := importAll(of)
	if err != nil {
		return err
	}
	if err := Store(m.d, m.tier); err != nil {
		fmt.Println("host memory:", err)
	} else {
		fmt.Println("host memory: written")
	}
	if err := of.Write(m.d, m.slab); err != nil {
		fmt.Println("device memory:", err)
	} else {
		fmt.Println("device memory: written")
	}
	return nil
}

// Store changes the first byte of host memory by the processor, and returns the fault if that is not allowed.
func Store(_ device.Device, b device.Buffer) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("fault: %v", fault)
		}
	}()
	b.Bytes()[0]++
	return nil
}
