//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// TablesOfLaunches returns which tables share a launch.
func (k *PooledTables) TablesOfLaunches(s *cuda.Stream) (all [][]int, err error) {
	k.args = make([]abi.PooledTable, k.len())
	launches, err := k.launches(s)
	for _, l := range launches {
		all = append(all, l.members)
	}
	return all, err
}
