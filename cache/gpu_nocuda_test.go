//go:build !cuda || !linux

package cache_test

import (
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
)

func freeMemory(*testing.T, device.Device) int64 { return 0 }

func TestNew_CudaNotBuilt(t *testing.T) {
	_, err := cache.New(cache.Options{Tables: []cache.Table{fromBytes(t, "x", make([]byte, 64), 16)}, Budget: 1 << 20, Device: "cuda"})
	if err == nil || !strings.Contains(err.Error(), "Device (cuda) is not usable: cuda: not in this build") {
		t.Errorf("New: %v", err)
	}
}
