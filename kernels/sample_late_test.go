package kernels

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// TestSampleRing_GivesUpOvertakenRecord: a record that an overtaken writer has put an old one in the place of is waited for
// for a while, since it may be on its way, and then counted as lost; what comes after it is read.
func TestSampleRing_GivesUpOvertakenRecord(t *testing.T) {
	r, err := NewSampleRing(host.Open(1, 1)[0], false, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer func(d time.Duration) { lateAfter = d }(lateAfter)
	lateAfter = 0
	drain := func() (keys []uint64, lost uint64) {
		lost = r.Drain(func(key uint64, _ uint32) { keys = append(keys, key) })
		return keys, lost
	}
	for key := range uint64(8) {
		r.append(key, abi.SampledAccess)
	}
	old := slices.Clone(view[uint64](r.records)[2*2:][:2]) // record 2, which record 10 is to take the place of
	if keys, lost := drain(); len(keys) != 8 || lost != 0 {
		t.Fatalf("read %v, lost %d", keys, lost)
	}
	for key := uint64(8); key < 13; key++ {
		r.append(key, abi.SampledAccess)
	}
	copy(view[uint64](r.records)[2*2:], old)
	for i, want := range []struct {
		keys []uint64
		lost uint64
	}{{[]uint64{8, 9}, 0}, {[]uint64{11, 12}, 1}, {nil, 0}, {nil, 0}} {
		if keys, lost := drain(); !slices.Equal(keys, want.keys) || lost != want.lost {
			t.Errorf("drain %d: read %v, lost %d, want %+v", i, keys, lost, want)
		}
	}
	r.append(13, abi.SampledAccess)
	if keys, lost := drain(); !slices.Equal(keys, []uint64{13}) || lost != 0 {
		t.Errorf("at the end: read %v, lost %d", keys, lost)
	}
}

// TestSampleRing_WriterFasterThanReader: a call of Drain ends, although a record is written for each that it reads.
func TestSampleRing_WriterFasterThanReader(t *testing.T) {
	const capacity = 8
	r, err := NewSampleRing(host.Open(1, 1)[0], false, capacity)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next, read := uint64(1), uint64(0)
	r.append(0, abi.SampledAccess)
	for call := range 3 {
		before := read
		lost := r.Drain(func(key uint64, _ uint32) {
			if key != read {
				t.Fatalf("read %d instead of %d", key, read)
			}
			if read++; next < 1000 {
				r.append(next, abi.SampledAccess)
				next++
			}
		})
		if read-before != capacity || lost != 0 {
			t.Errorf("call %d: %d read, %d lost", call, read-before, lost)
		}
	}
}

// TestSampleRing_Forged: whatever another process writes to a ring, Drain returns, counts no impossible losses, and reads what comes a ring later.
func TestSampleRing_Forged(t *testing.T) {
	const capacity = 8
	defer func(d time.Duration) { lateAfter = d }(lateAfter)
	lateAfter = 0
	for name, forge := range map[string]func(records, head []uint64){
		"lap":          func(records, _ []uint64) { records[2*5+1] = math.MaxUint32 },
		"lap of all":   func(records, _ []uint64) { forgeAll(records, 1<<20) },
		"next laps":    func(records, _ []uint64) { forgeAll(records, 3) },
		"head far":     func(_, head []uint64) { head[0] = 1 << 63 },
		"head ahead":   func(_, head []uint64) { head[0] += 1 << 40 },
		"head back":    func(_, head []uint64) { head[0] = 0 },
		"head, laps":   func(records, head []uint64) { head[0] += 1 << 40; forgeAll(records, 1<<30) },
		"head at most": func(_, head []uint64) { head[0] = math.MaxUint64 - 3 },
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewSampleRing(host.Open(1, 1)[0], false, capacity)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			drain := func() (keys []uint64) {
				if lost := r.Drain(func(key uint64, _ uint32) { keys = append(keys, key) }); lost > maxAppended {
					t.Errorf("%d records lost", lost)
				}
				return keys
			}
			for key := range uint64(capacity + 3) {
				r.append(key, abi.SampledAccess)
			}
			drain()
			forge(view[uint64](r.records), view[uint64](r.head))
			for range 4 {
				drain()
			}
			for key := range uint64(2 * capacity) { // takes the place of what was forged
				r.append(100+key, abi.SampledAccess)
				drain()
			}
			for range capacity {
				drain() // gives up what is not to come
			}
			var want []uint64
			for key := range uint64(capacity) {
				r.append(200+key, abi.SampledAccess)
				want = append(want, 200+key)
			}
			if got := drain(); !slices.Equal(got, want) {
				t.Errorf("then reads %v, want %v", got, want)
			}
		})
	}
}

// forgeAll gives all records a lap, with a check that fits.
func forgeAll(records []uint64, lap uint32) {
	for i := 0; i < len(records); i += 2 {
		records[i+1] = uint64(sampleCheck(records[i], lap))<<32 | uint64(lap)
	}
}
