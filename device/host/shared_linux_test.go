package host_test

import (
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
