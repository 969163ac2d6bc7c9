package admission

import "github.com/tensorcache/tensorcache/hashmap"

// Cost is the time that looked-up rows of one table take on a device, in seconds. It is the one objective of a cache: policies rank rows
// by the time that their hits save, and copies are placed to save the same time. The zero value stands for GPUCost of 512-byte rows.
type Cost struct {
	// MissRow is what a miss takes at least, however short the row is: a request to the host, and the translation of its address.
	MissRow float64
	// MissByte is the time of each stored byte of a miss, if that is more than MissRow: the link's.
	MissByte float64
	// Hit is the time of a hit.
	Hit float64
	// Cold is what a miss takes besides, in the mean over all misses, because some are of rows that lie below the host tier: in pages. A row in a slab leaves its
	// place in the host tier to such a row.
	Cold float64
}

// What an H200 takes behind PCIe 5 x16, of batches a fifth of which misses (gather-80 of docs/results/gpu-bench.json; a test compares
// them): 9.5 ns for a miss of up to 470 stored bytes, and 0.9 of the link's rate for longer ones. Hits cost a lookup and the writing of the
// decoded row.
const (
	gpuLink      = 55e9
	gpuLinkShare = 0.9
	gpuMissRow   = 9.5e-9
	gpuLookup    = 0.05e-9
	gpuDecode    = 1800e9
)

// leastSaved is the share of a miss's time that a hit saves at least. Where a hit takes as long as a miss, nothing is saved, and rows
// rank by the time of their misses.
const leastSaved = 0.05

// GPUCost returns the cost of rows of rowBytes decoded bytes on a GPU that reads host memory at link bytes a second; 0: 55e9, PCIe 5 x16.
func GPUCost(rowBytes int, link float64) Cost {
	if link <= 0 {
		link = gpuLink
	}
	return Cost{MissRow: gpuMissRow, MissByte: 1 / (gpuLinkShare * link), Hit: gpuLookup + float64(rowBytes)/gpuDecode}
}

// Miss returns the seconds that a miss of a row takes of which stored bytes lie in the host tier, or, as often as that is so, below it.
func (c Cost) Miss(stored int) float64 { return max(c.MissRow, float64(stored)*c.MissByte) + c.Cold }

// Saved returns the seconds by which a hit is faster than a miss.
func (c Cost) Saved(stored int) float64 {
	miss := c.Miss(stored)
	return max(miss-c.Hit, leastSaved*miss)
}

// LeastBytes returns the stored bytes up to which a miss takes as long as that of the shortest row.
func (c Cost) LeastBytes() int {
	if c.MissByte <= 0 {
		return 0
	}
	return int(c.MissRow / c.MissByte)
}

// Cost returns the cost of a table's rows.
func (p *Problem) Cost(table int) Cost {
	if table < len(p.Costs) && p.Costs[table] != (Cost{}) {
		return p.Costs[table]
	}
	return GPUCost(512, 0)
}

// bytes returns the device memory that a cached row takes: its slot, and its share of the hashmaps.
func (p *Problem) bytes(key uint64) float64 { return float64(max(1, p.SlotBytes(key)+p.MapBytes)) }

// savedPerByte returns the value of a row: the nanoseconds that a hit of it saves, per byte of device memory.
func (p *Problem) savedPerByte(key uint64) float64 {
	table, _ := hashmap.SplitKey(key)
	return 1e9 * p.Cost(table).Saved(p.StoredBytes(key)) / p.bytes(key)
}
