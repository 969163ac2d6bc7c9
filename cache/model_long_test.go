//go:build long

package cache_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/race"
)

// TestLong_EqualsVersionedMap is TestCache_EqualsVersionedMap with 10 M operations, or 2 M under the race detector, which makes one take
// twenty times as long. TENSORCACHE_OPERATIONS is another number.
func TestLong_EqualsVersionedMap(t *testing.T) {
	operations := int64(10_000_000)
	if race.Enabled {
		operations = 2_000_000
	}
	if n := os.Getenv("TENSORCACHE_OPERATIONS"); n != "" {
		var err error
		if operations, err = strconv.ParseInt(n, 10, 64); err != nil || operations < 1 {
			t.Fatalf("TENSORCACHE_OPERATIONS (%s) must be a number above 0", n)
		}
	}
	defer cache.ServeApart()()
	for name, m := range modelCases {
		t.Run(name, func(t *testing.T) {
			m.o.Devices.Backend = "host"
			runModel(t, operations/int64(len(modelCases))+1, m, m.devices, openFaulty(t, m.islands))
		})
	}
}

// TestLong_PageFilesEqualVersionedMap is TestPageFiles_EqualVersionedMap with 20 M operations, or 5 M under the race detector.
func TestLong_PageFilesEqualVersionedMap(t *testing.T) {
	operations := int64(20_000_000)
	if race.Enabled {
		operations = 5_000_000
	}
	runPagesModel(t, operations, 40)
}
