//go:build long

package cache_test

import (
	"testing"

	"github.com/tensorcache/tensorcache/cache"
)

// TestLong_EqualsVersionedMap is TestCache_EqualsVersionedMap with at least 10 M operations; make test-long runs it under the race
// detector too.
func TestLong_EqualsVersionedMap(t *testing.T) {
	defer cache.ServeApart()()
	for name, m := range modelCases {
		t.Run(name, func(t *testing.T) {
			m.o.Devices.Backend = "host"
			runModel(t, 10_000_000/int64(len(modelCases))+1, m.o, m.devices, openFaulty(t, m.islands), m.lose)
		})
	}
}
