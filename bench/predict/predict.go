// Package predict says how long a GPU takes for a batch, from figures that a GPU was measured with.
package predict

import (
	"cmp"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
)

// Model predicts how long a GPU takes for a batch, from the figures of a Report of that GPU. docs/performance.md has the formula and
// how far it is from measured batches. Times are in seconds, rates in bytes of rows a second unless they say otherwise. A Model is
// safe for concurrent use.
type Model struct {
	// Device is the name of the GPU.
	Device string
	// link copies page-locked memory to the device; linkShare is how much of that rate misses reach, by the bytes that a row takes there.
	link      float64
	linkShare curve
	// lookup is keys a second in the hashmap.
	lookup float64
	// gather copies uncompressed rows in device memory; decode writes hits, by the label of the codec, and stored is the stored ÷ raw bytes of the rows it
	// was measured on.
	gather curve
	decode map[string]curve
	stored map[string]curve
	// zeroCopy reads uncompressed rows of page-locked memory in the order of their addresses.
	zeroCopy curve
	// overlap is the time of the slower of hits and misses ÷ the time of both together.
	overlap curve
	// oneLaunch and launches are the times that do not depend on the rows: of a batch of at most oneLaunchRows, and of a larger one. replay is that of a captured
	// batch, by its number of rows.
	oneLaunch, launches float64
	replay              curve
	// plain and plainReplay are the same of a kernel that copies rows.
	plain, plainReplay float64
	translation
	sharing
}

const (
	// oneLaunchRows is the most rows of a batch that is one launch, if rows are shorter than oneLaunchBytes
	// (cache/internal/read/route.go).
	oneLaunchRows  = 8192
	oneLaunchBytes = 8 << 10
	// gatherCached is the share of the table that gather cases cache, and gatherHits the share of hits of gather-80.
	gatherCached = 0.5
	gatherHits   = 0.8
	// sectorBytes is the unit in which a GPU reads host memory.
	sectorBytes = 32
)

// A curve has a value at some row lengths, or other sizes, ascending.
type curve []point

type point struct{ rowBytes, value float64 }

// at interpolates by the logarithm of the row length. From the longest row on the value is constant. rate says that the value is bytes a
// second: below the shortest row, rows a second are constant then.
func (c curve) at(rowBytes float64, rate bool) float64 {
	first, last := c[0], c[len(c)-1]
	switch {
	case rowBytes <= first.rowBytes:
		if rate {
			return first.value * rowBytes / first.rowBytes
		}
		return first.value
	case rowBytes >= last.rowBytes:
		return last.value
	}
	i := slices.IndexFunc(c, func(p point) bool { return p.rowBytes >= rowBytes })
	a, b := c[i-1], c[i]
	t := math.Log(rowBytes/a.rowBytes) / math.Log(b.rowBytes/a.rowBytes)
	return a.value + t*(b.value-a.value)
}

// Batch is what a prediction is for. Numbers may be means of several batches.
type Batch struct {
	RowBytes int
	// Codec is the name of the codec, and DType the rows' element type.
	Codec string
	DType dtype.Type
	// Lookups is the rows of the batch, Hits those that are cached.
	Lookups, Hits float64
	// Stored is the stored ÷ raw bytes of the table's rows. 0: those of dense rows.
	Stored float64
	// MissBytes is the stored bytes that the misses read from the host.
	MissBytes float64
	// UncachedBytes is the host memory over which the rows that are not cached spread, TierBytes that of all rows; 0: the same.
	UncachedBytes, TierBytes float64
	// Captured says that the batch is replayed from a graph.
	Captured bool
	// HostThreads is how many threads of the host help with misses. 0: none.
	HostThreads int
}

// HostThreads is how many threads help with misses by default on a host with 16 processors or more.
const HostThreads = 8

// decoding is the rate at which hits are written. Rows that are stored in fewer bytes than dense ones take less time, down to what rows of zeros and few
// ones take, where those have been measured.
func (m *Model) decoding(name string, of dtype.Type, rowBytes, stored float64) float64 {
	label := name
	switch {
	case of == dtype.Float16 && m.decode[name+Float16Suffix] != nil:
		label += Float16Suffix
	case of.Size() == 2 && m.decode[name+BFloat16Suffix] != nil:
		label += BFloat16Suffix
	}
	dense, ok := m.decode[label]
	if !ok {
		if r := codec.RateOnGPU(name); r.Rate > 0 { // of another record, or a goal
			return m.gather.at(rowBytes, true) * r.At(1/cmp.Or(stored, 1/r.Ratio))
		}
		return m.gather.at(rowBytes, true)
	}
	rate, ones := dense.at(rowBytes, true), m.decode[name+OnesSuffix]
	if ones == nil || stored == 0 {
		return rate
	}
	most, least := m.stored[label].at(rowBytes, false), m.stored[name+OnesSuffix].at(rowBytes, false)
	part := min(1, max(0, (stored-least)/(most-least)))
	return 1 / (part/rate + (1-part)/ones.at(rowBytes, true))
}

// Knows says whether the model has figures of a codec, or at least a goal for its decoding; none, rows as they are, is one.
func (m *Model) Knows(name string) bool {
	return name == "none" || m.decode[name] != nil || m.decode[name+BFloat16Suffix] != nil || codec.RateOnGPU(name).Rate > 0
}

// Seconds predicts a batch that is read to device memory, on one GPU that does nothing else. REQUIRES: Knows(b.Codec).
func (m *Model) Seconds(b Batch) float64 {
	rowBytes, misses := float64(b.RowBytes), b.Lookups-b.Hits
	launch, miss := m.launches, 0.0
	if misses > 0 {
		sectors := math.Ceil(b.MissBytes/misses/sectorBytes) * sectorBytes
		miss = misses * sectors / (m.link * m.linkShare.at(sectors, true))
	}
	switch {
	case b.Lookups <= oneLaunchRows && b.RowBytes < oneLaunchBytes:
		launch = m.oneLaunch
		miss = max(miss, misses*m.unsorted(b.UncachedBytes))
	case m.shares(b):
		miss = max(miss, m.shared(b))
	default:
		miss = max(miss, m.page*pagesOf(misses, b.UncachedBytes))
	}
	if b.Captured {
		launch = m.replay.at(b.Lookups, false)
	}
	rows := max(b.Lookups*rowBytes/m.decoding(b.Codec, b.DType, rowBytes, b.Stored), miss)
	if b.Hits > 0 && misses > 0 {
		rows /= m.overlap.at(rowBytes, false)
	}
	return launch + b.Lookups/m.lookup + rows
}

// Uncached describes a batch without a cache: a kernel reads all rows, uncompressed, from page-locked memory.
type Uncached struct {
	Rows     float64
	RowBytes int
	// TableBytes is the memory over which the rows spread.
	TableBytes float64
	// Sorted says that rows are read in the order of their addresses. Sorting is not counted.
	Sorted bool
	// Captured says that the kernel is replayed from a graph.
	Captured bool
}

// Uncached predicts such a batch.
func (m *Model) Uncached(u Uncached) float64 {
	launch, walks := m.plain, u.Rows*m.unsorted(u.TableBytes)
	if u.Captured {
		launch = m.plainReplay
	}
	if u.Sorted {
		walks = m.plainPage * m.unknown(u.TableBytes) * pagesOf(u.Rows, u.TableBytes)
	}
	return launch + max(u.Rows*float64(u.RowBytes)/m.zeroCopy.at(float64(u.RowBytes), true), walks)
}
