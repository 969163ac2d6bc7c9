package cache

import (
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
)

// tuning is what a cache is made with beside its Options.
type tuning struct {
	*read.Tuning
	// openHost opens devices of the host backend, attachHost an attached cache's.
	openHost, attachHost func(n, workers int) []device.Device
	sysRoot              string // root of the /sys and /proc that describe the memory nodes
	shareAlways          bool   // the host's processors help with the misses of every batch of every table
	// What mergeBytes and mergeWait are is documented at mergeShare.
	mergeBytes int64
	mergeWait  time.Duration
}

func defaultTuning() *tuning {
	return &tuning{Tuning: read.DefaultTuning(), openHost: host.Open, attachHost: host.Open, sysRoot: "/", mergeBytes: 64 << 20, mergeWait: time.Second}
}

// newTuning returns the tuning of a cache that is being made. In tests all caches have one, which tests change.
var newTuning = defaultTuning
