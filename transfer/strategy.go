package transfer

import (
	"sync"

	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// Where sharing is tried: small rows of tables that the device's address translation does not cover, in batches long enough
// for the host to take part. On an H200 and its host 2 GiB tables are read at the link's speed without.
const (
	shareTier     = 4 << 30 // bytes
	shareRow      = 768     // bytes
	shareBatch    = 16384   // rows
	shareGain     = 0.97    // of the time alone, or sharing is dropped
	shareTrial    = 8       // shared batches before that is decided, and after each dropping
	shareRetry    = 256     // batches alone after a dropping
	shareMeasure  = 64      // every so many batches one goes alone, to know what that takes
	shareBeginsAt = 0.5     // the host's part before anything is known
)

// shareHostBlocks is the blocks that begin with the host's part of a shared batch: with 16 the host had gathered all when half of it was
// written, 48 to 96 were no faster.
const shareHostBlocks = 32

// shareBlocks is the blocks that begin with the device's own part of a shared batch, and those of a batch alone. While copies cross the
// link too, the device's reads take longer, and more of them pay. Seen on an H200, 16 GB: 256-byte rows, 24 / 32 / 40 blocks with 15 threads
// 37.3 / 38.6 / 37.7 GB/s, with 4 threads 31.9 / 34.2 / 32.3; 512-byte rows 42.4 / 44.4 / 45.9 and 34.5 / 38.8 / 41.9. Alone, 16 / 24 / 32
// / 48 blocks: 12.7 / 15.3 / 15.2 / 15.4 and 16.3 / 23.8 / 29.6 / 31.3.
func shareBlocks(rowBytes int) (own, alone int) {
	if rowBytes <= 256 {
		return 32, 24
	}
	return 40, 48
}

// ShareTable is a table whose misses a Sharer helps with: what has been learnt about it. Safe for concurrent use.
type ShareTable struct {
	sharer *Sharer
	tier   kernels.HostRows // its memory is the host's
	terms  kernels.Share
	always bool

	mu struct {
		sync.Mutex
		stamp           uint32 // the last times seen
		split           split
		fraction        float64 // the host's part
		alone, shared   float64 // nanoseconds a miss
		batches         int     // since the last decision
		alternate       int
		dropped         bool
		sharedN, aloneN int64 // batches enqueued
		gaveUp          int64
	}
}

// ShareStats say how a table's misses are fetched.
type ShareStats struct {
	// Strategy is "zero-copy", "shared", or "zero-copy: sharing does not pay".
	Strategy string
	// Fraction is the part of a shared batch's misses that the host's processors gather.
	Fraction float64
	// Batches enqueued to be shared, and not to be; and shares in which the host did not keep up with the time-out.
	Shared, Alone, GaveUp int64
	// Nanoseconds a miss, shared and alone; 0 where not measured.
	SharedNanos, AloneNanos float64
}

// Shareable says whether sharing a table's misses is worth trying.
func Shareable(tier kernels.HostRows) bool {
	// Packed rows may move when they are written, and a worker that is late still reads where they lay.
	return tier.Stride != 0 && tier.Mem.Size() >= shareTier && tier.RowBytes <= shareRow && tier.RowBytes <= kernels.MaxShareRow
}

// Table registers a table's host tier as the device's kernels see it, or returns nil where sharing is not worth trying. The
// tier must stay until the Sharer is closed.
func (s *Sharer) Table(tier kernels.HostRows, c kernels.Codec) *ShareTable {
	always := s != nil && s.terms.Least == 1
	if s == nil || !c.Shares(tier.RowBytes) || !always && !Shareable(tier) {
		return nil
	}
	t := &ShareTable{sharer: s, tier: tier, terms: s.terms, always: always}
	t.mu.fraction = t.mu.split.fraction()
	if t.terms.Unit == 0 {
		t.terms.Unit = shareUnit(tier.RowBytes)
	}
	// What is moved of each row: its usual length and a little, or all where rows are raw. The device reads the rest itself.
	bytes := tier.RowBytes
	if c.Codec != nil {
		header := c.HeadBytes()
		usual := tier.Ahead
		if usual == 0 { // packed: lengths are in the index
			usual = tier.RowBytes
		}
		bytes = min(bytes, max(header, usual+usual/32))
	}
	t.terms.Slot = (bytes + 15) &^ 15
	rows := s.terms.Stage.Size() / int64(t.terms.Slot)
	t.terms.MaxPieces = int(min(rows/int64(t.terms.Piece), abi.SharePieces, int64(abi.ShareUnits*t.terms.Unit/t.terms.Piece)))
	s.mu.Lock()
	defer s.mu.Unlock()
	t.terms.Tier = uint32(len(s.mu.tables))
	s.mu.tables = append(s.mu.tables, t)
	return t
}

// next learns from the last share that has ended and returns the terms of the next one; false says to fetch alone and
// unmeasured.
func (t *ShareTable) next(rows int64) (kernels.Share, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	terms := t.terms
	if rows < int64(terms.Least) || terms.MaxPieces == 0 || t.sharer.failed.Load() || t.sharer.closing.Load() {
		t.mu.aloneN++
		return terms, false
	}
	t.learnLocked()
	t.mu.batches++
	alone := false
	switch {
	case t.always:
	case t.mu.dropped:
		alone = true
		if t.mu.batches >= shareRetry {
			t.mu.dropped, t.mu.batches, t.mu.shared = false, 0, 0
		}
	case t.mu.alone == 0:
		alone = true
	default:
		t.mu.alternate++
		alone = t.mu.alternate%shareMeasure == 0
		if t.mu.batches >= shareTrial && t.mu.shared != 0 && t.mu.shared > shareGain*t.mu.alone {
			t.mu.dropped, t.mu.batches = true, 0
		}
	}
	ownBlocks, aloneBlocks := shareBlocks(t.tier.RowBytes)
	if alone {
		t.mu.aloneN++
		terms.Own, terms.Blocks = aloneBlocks, aloneBlocks
	} else {
		t.mu.sharedN++
		terms.Own = ownBlocks
		terms.Blocks = terms.Own + shareHostBlocks
		terms.Fraction = uint32(t.mu.fraction * 65536)
	}
	return terms, true
}

// learnLocked takes in the times of the last share, if it was this table's. REQUIRES: t.mu is locked.
func (t *ShareTable) learnLocked() {
	times, ok := t.sharer.host.LastTimes()
	if !ok || times.Stamp == t.mu.stamp || times.Tier != t.terms.Tier || times.Misses == 0 {
		return
	}
	t.mu.stamp = times.Stamp
	each := float64(times.Nanos) / float64(times.Misses)
	if times.Staged+times.Taken == 0 {
		t.mu.alone = blend(t.mu.alone, each)
		return
	}
	t.mu.shared = blend(t.mu.shared, each)
	if times.GaveUp != 0 {
		t.mu.gaveUp++
	}
	t.mu.split.learn(times)
	t.mu.fraction = t.mu.split.fraction()
}

// blend is a mean that forgets. One time that is far beyond the others, because the system had put a thread aside, counts as twice the
// mean: one of 10 ms was seen to end sharing that took less than half of the time alone.
func blend(mean, x float64) float64 {
	if mean == 0 {
		return x
	}
	return 0.75*mean + 0.25*min(x, 2*mean)
}

// Stats returns how the table's misses are fetched as of now.
func (t *ShareTable) Stats() ShareStats {
	if t == nil {
		return ShareStats{Strategy: "zero-copy"}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learnLocked()
	s := ShareStats{
		Strategy: "shared", Fraction: t.mu.fraction, Shared: t.mu.sharedN, Alone: t.mu.aloneN, GaveUp: t.mu.gaveUp,
		SharedNanos: t.mu.shared, AloneNanos: t.mu.alone,
	}
	switch {
	case t.mu.dropped:
		s.Strategy = "zero-copy: sharing does not pay"
	case t.mu.sharedN == 0:
		s.Strategy = "zero-copy"
	}
	return s
}
