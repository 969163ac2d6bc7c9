package transfer

import (
	"slices"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// Sharing is tried for small rows of large tables, which the device's TLB does not cover, in batches that are long enough for
// the host to take part. Where it pays was measured: docs/notebook/shared-misses.md.
const (
	shareTier  = 4 << 30 // least bytes of the tier
	shareRow   = 768     // most bytes of a row
	unitsTier  = 6 << 30 // the same for reading by units without sharing (BeyondTranslation)
	unitsRow   = 1024
	shareBatch = 16384 // least rows of a batch
	shareGain  = 0.97  // sharing stops if it takes more than this fraction of the time without
	shareTrial = 8     // batches before the first comparison
	// One in shareMeasure batches is not shared, to measure its time. A comparison that favours sharing is followed by as
	// many batches before the next one.
	shareMeasure  = 64
	shareCompared = 8   // timed batches of each way in a comparison
	shareBeginsAt = 0.5 // the host's first fraction
	// While sharing does not pay, every shareProbe-th batch is a probe: the host gathers a part of its misses, at first splitLeast. If that part was
	// fast, the batch after next is a probe with the part at which host and device would finish together. shareGood good probes in a row begin sharing
	// again, about 8 batches after other programs have left the processors. Probes of busy processors are to cost little: their part is small, the
	// device does not wait for it longer than shareProbeWait, and the next one comes later. But a thread that the system suspends in the driver can
	// hold up the caller there, which the device's times do not show. So after probes have begun sharing wrongly, one good probe more is asked for.
	shareProbe     = 4
	shareProbeNext = 2
	shareProbeLate = 6    // after a probe that the device gave up
	shareProbeGain = 0.93 // a probe is good that takes less than this fraction of the time without sharing
	shareGood      = 2
	shareProbeWait = 200 * time.Microsecond
)

// shareHostBlocks is the number of thread blocks that start on the host's part of a shared batch. With 16, the host had gathered
// everything when half of it was written; 48 to 96 were no faster.
const shareHostBlocks = 32

// shareBlocks returns the number of thread blocks that start on the device's own part of a shared batch, and that of a batch
// without sharing. In a shared batch copies use the link too, so the device's reads take longer and need more blocks.
// Measured on an H200 with a table of 16 GB, in GB/s:
//
//	                             256-byte rows              512-byte rows
//	shared, 24 / 32 / 40 blocks
//	    15 host threads          37.3 / 38.6 / 37.7         42.4 / 44.4 / 45.9
//	    4 host threads           31.9 / 34.2 / 32.3         34.5 / 38.8 / 41.9
//
// Alone, 48 / 66 blocks that take units from a counter take 2.30 / 2.29 ms for 200,000 rows of 256 bytes, 2.37 / 2.36 for rows of 512, and of
// tables of 8 GiB with codec rank 1.77 / 1.76 and 2.42 / 1.93. Where address translation is not the limit, the device alone has a block on
// each multiprocessor, as kernels.Fetch has.
func shareBlocks(tier kernels.HostRows) (own, alone int) {
	own, alone = 40, 66
	if tier.RowBytes <= 256 {
		own = 32
	}
	if !BeyondTranslation(tier) {
		alone = 0
	}
	return own, alone
}

// ShareTable holds what a Sharer has measured of one table. Safe for concurrent use.
type ShareTable struct {
	sharer *Sharer
	tier   kernels.HostRows
	terms  kernels.Share
	always bool
	mu     *shareLearnt // shared by all tables that Moved derives from each other
}

// shareLearnt is what was measured of the batches of a table.
//
// Batches are shared while their mean time is below that of batches without sharing. These are rare, and other kernels of the device may begin or
// end between them. So a mean that is not below starts a comparison, in which batches are shared and not shared in turns; it alone ends sharing.
// Probes begin it again: see shareProbe.
type shareLearnt struct {
	sync.Mutex
	stamp           uint32 // of the latest times that were used
	split           split
	fraction        float64 // of the misses, for the host
	alone, shared   float64 // mean nanoseconds a miss, without and with sharing
	batches         int     // since the last comparison or probe
	pause           int     // least number of batches until the next comparison or probe
	alternate       int
	comparing       bool
	compared        struct{ alone, shared comparedTimes } // of the comparison under way, or of the last one
	dropped         bool
	probe           float64 // while dropped: the host's fraction of the next probe
	good            int     // while dropped: how many of the last probes in a row were faster than batches without sharing
	probing         bool    // while dropped: the time of a probe has yet to be read
	onProbes        bool    // probes have begun sharing, less than shareMeasure batches ago
	doubted         bool    // the next comparison ended what probes had begun last
	sharedN, aloneN int64   // number of batches
	gaveUp          int64
}

// comparedTimes are times of batches, nanoseconds a miss.
type comparedTimes struct {
	of [shareCompared]float64
	n  int
}

func (t *comparedTimes) add(x float64) {
	if t.n < len(t.of) {
		t.of[t.n] = x
		t.n++
	}
}

// median returns 0 if there are no times.
func (t *comparedTimes) median() float64 {
	of := t.of
	slices.Sort(of[:t.n])
	return of[t.n/2]
}

// compare begins a comparison.
func (l *shareLearnt) compare() {
	l.compared.alone.n, l.compared.shared.n = 0, 0
	l.comparing, l.batches = true, 0
}

// decide ends the comparison if it has enough times.
func (l *shareLearnt) decide() {
	c := &l.compared
	enough := c.alone.n == shareCompared && c.shared.n == shareCompared
	if !enough && l.batches < 8*shareCompared { // in a long queue, many times are overwritten before they are read: then it ends with fewer
		return
	}
	l.comparing, l.batches = false, 0
	if c.alone.n == 0 || c.shared.n == 0 {
		l.pause = shareMeasure
		return
	}
	l.alone, l.shared, l.pause = c.alone.median(), c.shared.median(), shareMeasure
	if l.dropped = l.shared > shareGain*l.alone; l.dropped {
		l.doubted = l.onProbes
		l.probe, l.good, l.probing, l.pause = splitLeast, 0, false, shareProbe
	}
	l.onProbes = false
}

// probed learns from a probe, which took so many nanoseconds a miss.
func (l *shareLearnt) probed(t abi.ShareTimes, each float64) {
	l.probing = false
	enough := shareGood
	if l.doubted {
		enough++
	}
	if t.GaveUp != 0 || each > shareProbeGain*l.alone {
		l.good = 0
	} else if l.good++; l.good == enough {
		l.dropped, l.onProbes, l.shared, l.pause, l.batches = false, true, each, shareTrial, 0
		l.split = split{}
		l.split.learn(t)
		l.fraction = l.split.fraction()
		return
	}
	odds := evenOdds(t)
	fraction := odds / (1 + odds)
	switch {
	case t.GaveUp != 0:
		l.pause = shareProbeLate
	case fraction > l.probe || l.good > 0:
		l.pause = shareProbeNext
	default:
		l.pause = shareProbe
	}
	l.probe = fraction
}

// ShareStats describe how a table's misses are read.
type ShareStats struct {
	// Strategy is "zero-copy", "shared", or "zero-copy: sharing does not pay".
	Strategy string
	// Fraction is the fraction of a shared batch's misses that host threads gather, 0 unless Strategy is "shared".
	Fraction float64
	// Shared and Alone are the numbers of batches with and without sharing. GaveUp is the number of shared batches in which
	// the device timed out waiting for the host.
	Shared, Alone, GaveUp int64
	// SharedNanos and AloneNanos are the mean nanoseconds a miss, 0 if not measured.
	SharedNanos, AloneNanos float64
}

// BeyondTranslation says whether a GPU's reads of a table's misses are limited by address translation, not by bytes.
// Such tables are large and have short rows. A GPU reads their misses by units.
func BeyondTranslation(tier kernels.HostRows) bool {
	return tier.Mem.Size() >= unitsTier && tier.RowBytes <= unitsRow
}

// Always says whether every batch of the table is shared, as tests ask for.
func (t *ShareTable) Always() bool { return t != nil && t.always }

// Shareable reports whether sharing a table's misses is worth trying.
func Shareable(tier kernels.HostRows) bool {
	return tier.Mem.Size() >= shareTier && tier.RowBytes <= shareRow
}

// Table registers a table's host tier, or returns nil if sharing is not tried for it. The Sharer must be closed
// before the tier.
func (s *Sharer) Table(tier kernels.HostRows, c kernels.Codec) *ShareTable {
	always := s != nil && s.terms.Least == 1
	if s == nil || tier.RowBytes > kernels.MaxShareRow || !always && !Shareable(tier) {
		return nil
	}
	t := &ShareTable{sharer: s, tier: tier, terms: s.terms, always: always, mu: &shareLearnt{pause: shareTrial}}
	t.mu.fraction = t.mu.split.fraction()
	if t.terms.Unit == 0 {
		t.terms.Unit = shareUnit(tier.RowBytes)
	}
	if s.pieces {
		t.terms.Piece = max(t.terms.Unit, sharePiece(tier.RowBytes)/t.terms.Unit*t.terms.Unit)
	}
	bytes := tier.RowBytes
	if c.Codec != nil && tier.Common != 0 {
		bytes = min(bytes, max(c.Form.Head, tier.Common))
	}
	t.terms.Slot = (bytes + 15) &^ 15
	rows := s.terms.Stage.Size() / int64(t.terms.Slot)
	t.terms.MaxPieces = int(min(rows/int64(t.terms.Piece), abi.SharePieces, int64(abi.ShareUnits*t.terms.Unit/t.terms.Piece)))
	s.register(t)
	return t
}

// register gives a table its number.
func (s *Sharer) register(t *ShareTable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := slices.Index(s.mu.tables, nil)
	if n < 0 {
		n = len(s.mu.tables)
		s.mu.tables = append(s.mu.tables, nil)
	}
	t.terms.Tier, s.mu.tables[n] = uint32(n), t
}

// Moved returns the table for batches that read its rows from elsewhere, as after Tier.Repack. It keeps all that was
// learnt of the table. Batches that have begun go on with t. When they have ended, t must be released. t may be nil.
func (t *ShareTable) Moved(tier kernels.HostRows) *ShareTable {
	if t == nil {
		return nil
	}
	moved := &ShareTable{sharer: t.sharer, tier: tier, terms: t.terms, always: t.always, mu: t.mu}
	t.sharer.register(moved)
	return moved
}

// Release waits until no worker reads the table's rows, and prevents workers from reading them afterwards. Then the
// rows' memory can be freed. Workers may outlast batches: a late one may still gather rows for a batch that has
// ended, because the device gave up waiting for it. t may be nil, released already, or of a Sharer that is closed.
// REQUIRES: all batches of t have ended.
func (t *ShareTable) Release() {
	if t == nil {
		return
	}
	s := t.sharer
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := t.terms.Tier; s.mu.tables[n] == t {
		s.mu.tables[n] = nil
	}
	for s.mu.serving == t {
		s.mu.left.Wait()
	}
}

// begin makes a table that has not been read yet start with what another one has learnt. That is the split and, if
// the rows are as long, the time without sharing.
func (t *ShareTable) begin(from *ShareTable) {
	from.mu.Lock()
	from.learnLocked()
	split, alone := from.mu.split, from.mu.alone
	from.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.split, t.mu.fraction = split, split.fraction()
	if t.tier.RowBytes == from.tier.RowBytes {
		t.mu.alone = alone
	}
}

// next learns from the last shared batch that has ended, and returns the terms of the next one. If it returns false,
// the batch is neither shared nor measured.
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
	if t.mu.comparing {
		t.mu.decide()
	}
	alone, fraction := false, t.mu.fraction
	switch {
	case t.always:
	case t.mu.dropped && t.mu.batches >= t.mu.pause:
		fraction, terms.Timeout = t.mu.probe, min(terms.Timeout, shareProbeWait)
		t.mu.probing, t.mu.batches, t.mu.pause = true, 0, shareProbe
	case t.mu.dropped:
		alone = true
		// kernels.Fetch reads the batch, and is not timed. The one behind a probe is timed all the same, as the next probe is compared with it.
		if !BeyondTranslation(t.tier) && t.mu.batches != 1 {
			t.mu.aloneN++
			return terms, false
		}
	case t.mu.comparing:
		t.mu.alternate++
		alone = t.mu.alternate%2 == 0
	case t.mu.alone == 0:
		alone = true
	default:
		t.mu.alternate++
		alone = t.mu.alternate%shareMeasure == 0
		t.mu.onProbes = t.mu.onProbes && t.mu.batches < shareMeasure
		if t.mu.batches >= t.mu.pause && t.mu.shared > shareGain*t.mu.alone {
			t.mu.compare()
		}
	}
	ownBlocks, aloneBlocks := shareBlocks(t.tier)
	if alone {
		t.mu.aloneN++
		terms.Own, terms.Blocks = aloneBlocks, aloneBlocks
	} else {
		t.mu.sharedN++
		terms.Own = ownBlocks
		terms.Blocks = terms.Own + shareHostBlocks
		terms.Fraction = uint32(fraction * 65536)
	}
	return terms, true
}

// learnLocked uses the times of the last shared batch, if it was this table's. REQUIRES: t.mu is locked.
func (t *ShareTable) learnLocked() {
	times, ok := t.sharer.host.LastTimes()
	if !ok || times.Stamp == t.mu.stamp || times.Tier != t.terms.Tier || times.Misses == 0 {
		return
	}
	t.mu.stamp = times.Stamp
	each := float64(times.Nanos) / float64(times.Misses)
	if times.Staged+times.Taken == 0 {
		t.mu.alone = movingMean(t.mu.alone, each)
		if t.mu.comparing {
			t.mu.compared.alone.add(each)
		}
		return
	}
	if times.GaveUp != 0 {
		t.mu.gaveUp++
	}
	if t.mu.dropped {
		if t.mu.probing { // else it is the last one of the comparison
			t.mu.probed(times, each)
		}
		return
	}
	t.mu.shared = movingMean(t.mu.shared, each)
	if t.mu.comparing {
		t.mu.compared.shared.add(each)
	}
	t.mu.split.learn(times)
	t.mu.fraction = t.mu.split.fraction()
}

// movingMean returns an exponential moving average. A value above twice the mean counts as twice the mean. Without
// this, a single batch of 10 ms, in which the system had preempted a thread, once stopped sharing. Sharing then took
// less than half the time without.
func movingMean(mean, x float64) float64 {
	if mean == 0 {
		return x
	}
	return 0.75*mean + 0.25*min(x, 2*mean)
}

// Stats returns the current state.
func (t *ShareTable) Stats() ShareStats {
	if t == nil {
		return ShareStats{Strategy: "zero-copy"}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learnLocked()
	s := ShareStats{
		Strategy: "zero-copy", Shared: t.mu.sharedN, Alone: t.mu.aloneN, GaveUp: t.mu.gaveUp, SharedNanos: t.mu.shared, AloneNanos: t.mu.alone,
	}
	switch {
	case t.mu.dropped:
		s.Strategy = "zero-copy: sharing does not pay"
	case t.mu.sharedN > 0:
		s.Strategy, s.Fraction = "shared", t.mu.fraction
	}
	return s
}
