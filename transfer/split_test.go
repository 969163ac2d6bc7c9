package transfer

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// sides is a model of how shares go.
type sides struct {
	host, device float64 // misses a nanosecond
	start, tail  float64 // nanoseconds until the host gathers, and from its last row gathered to that row written
	stealing     float64 // of its speed the device has at what it takes over
	noise        float64 // standard deviation of the logarithm of either side's speed
	stalls       float64 // the part of shares in which what the host has gathered does not arrive for longer than the time-out
	timeout      float64 // nanoseconds; 0: sideTimeout
}

const (
	sideMisses  = 200_000
	sidePiece   = defaultPiece
	sideTimeout = 1e6 // nanoseconds
)

// share returns how a share goes, without noise if there is no r.
func (m sides) share(fraction float64, r *rand.Rand) abi.ShareTimes {
	host, device, stalled := m.host, m.device, false
	if r != nil {
		host *= math.Exp(m.noise * r.NormFloat64())
		device *= math.Exp(m.noise * r.NormFloat64())
		stalled = r.Float64() < m.stalls
	}
	part := math.Floor(sideMisses*fraction/sidePiece) * sidePiece
	staged, ownEnd := part, (sideMisses-part)/device
	if left := part - max(0, ownEnd-m.start)*host; left > 0 {
		// The device goes on from the back, alone until the host begins, until both meet.
		alone := min(max(0, m.start-ownEnd), left/(device*m.stealing))
		both := (left - alone*device*m.stealing) / (host + device*m.stealing)
		staged -= (alone + both) * device * m.stealing
		if both > 0 {
			staged = part - left + both*host
		}
		ownEnd += alone + both
	}
	staged = max(0, staged)
	t := abi.ShareTimes{Misses: sideMisses}
	hostEnd := m.start + staged/host + m.tail
	if stalled {
		arrived := staged * r.Float64()
		hostEnd, t.GaveUp = m.start+arrived/host+cmp.Or(m.timeout, sideTimeout), 1
		ownEnd = max(ownEnd, hostEnd) + (staged-arrived)/device
		staged = arrived
	}
	t.Staged, t.OwnNanos = uint32(staged), uint64(ownEnd)
	t.Taken = uint32(part) - t.Staged
	if t.Staged != 0 {
		t.HostNanos = uint64(hostEnd)
	}
	t.Nanos = max(t.OwnNanos, t.HostNanos)
	return t
}

// nanos is what a share takes without noise.
func (m sides) nanos(fraction float64) float64 { return float64(m.share(fraction, nil).Nanos) }

// best is what the fastest share takes, without noise.
func (m sides) best() float64 {
	nanos := math.Inf(1)
	for f := splitLeast; f <= splitMost; f += 0.002 {
		nanos = min(nanos, m.nanos(f))
	}
	return nanos
}

// run shares n times and returns what the fractions took without noise, the mean, of the fastest.
func (m sides) run(s *split, n int, r *rand.Rand) float64 {
	sum := 0.0
	for range n {
		f := s.fraction()
		sum += m.nanos(f)
		s.learn(m.share(f, r))
	}
	return sum / float64(n) / m.best()
}

// splitFrom is a split that has learnt a fraction.
func splitFrom(fraction float64) *split {
	s := &split{learnt: splitRecent}
	for i := range s.odds {
		s.odds[i] = math.Log(fraction / (1 - fraction))
	}
	return s
}

// Speeds of 15 and 4 threads and of a slow host beside an H200, rows of 256 bytes, of 15 threads at 512 bytes, and one whose start
// takes long.
var manySides = []sides{
	{host: 0.125, device: 0.052, start: 150e3, tail: 20e3, stealing: 0.9, noise: 0.04},
	{host: 0.083, device: 0.056, start: 60e3, tail: 20e3, stealing: 0.9, noise: 0.04},
	{host: 0.020, device: 0.060, start: 60e3, tail: 20e3, stealing: 0.9, noise: 0.06},
	{host: 0.052, device: 0.042, start: 80e3, tail: 20e3, stealing: 0.8, noise: 0.04},
	{host: 0.130, device: 0.060, start: 400e3, tail: 200e3, stealing: 0.7, noise: 0.06},
}

func TestSplit_FindsTheFastest(t *testing.T) {
	for i, m := range manySides {
		for _, from := range []float64{0.05, 0.2, 0.5, 0.8, 0.95} {
			for _, stalls := range []float64{0, 0.1, 0.25} {
				m.stalls = stalls
				t.Run(fmt.Sprintf("%d/from=%v/stalls=%v", i, from, stalls), func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, uint64(i)))
					s := splitFrom(from)
					if from == 0.5 {
						s = new(split)
					}
					m.run(s, 20, r)
					if ratio := m.run(s, 200, r); ratio > 1.03 {
						t.Errorf("from share 20 on %.3f of the fastest, at %.3f", ratio, s.fraction())
					}
				})
			}
		}
	}
}

// TestSplit_FollowsTheHost has the host slow down and recover, as where others use its processors.
func TestSplit_FollowsTheHost(t *testing.T) {
	for i, m := range manySides {
		r := rand.New(rand.NewPCG(2, uint64(i)))
		s := new(split)
		fast := m.host
		for _, speed := range []float64{0.25, 1, 0.5, 2, 1} { // the first shares wake threads and fault pages
			m.host = fast * speed
			m.run(s, 20, r)
			if ratio := m.run(s, 100, r); ratio > 1.03 {
				t.Errorf("%d: host at %v of its speed: %.3f of the fastest, at %.3f", i, speed, ratio, s.fraction())
			}
		}
	}
}

// TestSplit_OneLateShare: a share that the device gave up, or that took the host ten times as long, moves nothing for long.
func TestSplit_OneLateShare(t *testing.T) {
	m := manySides[0]
	m.noise = 0
	s := new(split)
	m.run(s, 20, nil)
	settled := s.fraction()
	for _, late := range []abi.ShareTimes{
		{Misses: sideMisses, Taken: uint32(settled * sideMisses), GaveUp: 1, OwnNanos: 3e6, Nanos: 3e6},
		{Misses: sideMisses, Staged: uint32(settled * sideMisses), OwnNanos: 1e6, HostNanos: 12e6, Nanos: 12e6},
		{Misses: sideMisses, Taken: uint32(settled * sideMisses), OwnNanos: 3e6, Nanos: 3e6}, // the host came too late
	} {
		s.learn(late)
		if f := s.fraction(); math.Abs(f-settled) > 0.01 {
			t.Errorf("%.3f instead of %.3f after %+v", f, settled, late)
		}
		m.run(s, 5, nil)
	}
}

// TestSplit_HostThatNeverComes: what the device gives up again and again is hardly the host's any more, and is again once it comes.
func TestSplit_HostThatNeverComes(t *testing.T) {
	s := new(split)
	for range 5 {
		part := uint32(s.fraction() * sideMisses)
		s.learn(abi.ShareTimes{Misses: sideMisses, Taken: part, GaveUp: 1, OwnNanos: 3e6, Nanos: 3e6})
	}
	if f := s.fraction(); f > splitLeast+1e-9 {
		t.Errorf("after five shares that were given up %.3f", f)
	}
	m := manySides[0]
	r := rand.New(rand.NewPCG(3, 3))
	m.run(s, 20, r)
	if ratio := m.run(s, 100, r); ratio > 1.03 {
		t.Errorf("%.3f of the fastest, at %.3f", ratio, s.fraction())
	}
}

// TestSplit_AnyTimes: whatever a device says, the fraction stays one.
func TestSplit_AnyTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	number := func() uint32 {
		if r.IntN(3) == 0 {
			return 0
		}
		return r.Uint32() >> r.IntN(32)
	}
	s := new(split)
	for range 100_000 {
		s.learn(abi.ShareTimes{
			Misses: number(), Staged: number(), Taken: number(), GaveUp: number(), OwnNanos: uint64(number()), HostNanos: uint64(number()),
		})
		if f := s.fraction(); !(f >= splitLeast && f <= splitMost) {
			t.Fatalf("fraction %v: %+v", f, s)
		}
	}
}

// TestShareTable_LateBatches has the device give up one share in four: sharing still pays, and the split stays.
func TestShareTable_LateBatches(t *testing.T) {
	s, err := NewSharer(newDevice(), ShareOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := s.Table(kernels.HostRows{Mem: device.Buffer{}.Slice(0, shareTier), Stride: 256, RowBytes: 256}, kernels.Codec{})
	m := manySides[0]
	m.stalls = 0.25
	r := rand.New(rand.NewPCG(5, 5))
	off := 0
	for i := range 300 {
		terms, _ := table.next(sideMisses)
		times := abi.ShareTimes{Misses: sideMisses, OwnNanos: 3.3e6, Nanos: 3.3e6}
		if terms.Fraction != 0 {
			f := float64(terms.Fraction) / 65536
			times = m.share(f, r)
			if i >= 20 && m.nanos(f) > 1.1*m.best() {
				off++
			}
		}
		times.Stamp, times.Tier = uint32(i+1), table.terms.Tier
		setTimes(s.host, times)
	}
	if st := table.Stats(); st.Strategy != "shared" || st.GaveUp < 30 || off > 3 {
		t.Errorf("%+v; %d of 280 fractions were off", st, off)
	}
}
