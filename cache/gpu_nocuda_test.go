//go:build !cuda || !linux

package cache_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
)

func freeMemory(*testing.T, device.Device) int64 { return 0 }

func TestNew_CudaNotBuilt(t *testing.T) {
	_, err := cache.New(cache.Options{Tables: []cache.Table{fromBytes(t, "x", make([]byte, 64), 16)}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: "cuda"}})
	if err == nil || !strings.Contains(err.Error(), "Devices.Backend (cuda) is not usable: cuda: not in this build") {
		t.Errorf("New: %v", err)
	}
}

// TestNew_AutoSaysWhyHost: an operator who expected GPUs reads in the log why there are none.
func TestNew_AutoSaysWhyHost(t *testing.T) {
	for device, want := range map[string]string{"auto": `level=INFO msg="host backend taken" cache=here reason="cuda: not in this build`, "host": ""} {
		var log bytes.Buffer
		newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", make([]byte, 64), 16)}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: cache.Backend(device)},
			Telemetry: cache.TelemetryOptions{Name: "here", Logger: slog.New(slog.NewTextHandler(&log, nil))},
		})
		if got := strings.Contains(log.String(), "host backend"); got != (want != "") || !strings.Contains(log.String(), want) {
			t.Errorf("%s: the log should have %q:\n%s", device, want, &log)
		}
	}
}
