package host_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/sharetest"
)

var backend = sharetest.Backend{
	Open:  func(string) (device.Device, error) { return host.Open(1, 1)[0], nil },
	Read:  func(_ device.Device, b device.Buffer) ([]byte, error) { return b.Bytes(), nil },
	Write: sharetest.Store,
}

func TestMain(m *testing.M) { sharetest.Main(m, backend) }

func TestShared_OwnerKilled(t *testing.T) { sharetest.OwnerKilled(t) }

func TestShared_BadDescriptors(t *testing.T) { sharetest.BadDescriptors(t, backend) }

func TestShared_NothingLeft(t *testing.T) { sharetest.NothingLeft(t, backend, 1000, 3<<20, nil) }

// TestShared_ReadOnly: a process that writes faults.
func TestShared_ReadOnly(t *testing.T) {
	const want = "fault: runtime error: invalid memory address or nil pointer dereference"
	if host, device := sharetest.ReadOnly(t); host != want || device != want {
		t.Errorf("host memory: %s; device memory: %s", host, device)
	}
}

// TestShared_TooLarge: a process has addresses for 2^47 bytes at most.
func TestShared_TooLarge(t *testing.T) {
	d := host.Open(1, 1)[0].(*host.Device)
	var err error
	for range 2 {
		var b device.Buffer
		if b, err = d.AllocShared(1<<46, "slab"); err == nil {
			defer d.Free(b)
		}
	}
	if !errors.Is(err, device.ErrOutOfMemory) || !strings.HasPrefix(err.Error(), "host: allocation for slab: device: out of memory: numa: out of memory: numa: shared memory (70368744177664 bytes) cannot be mapped: ") {
		t.Error(err)
	}
}
