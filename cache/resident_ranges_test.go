package cache_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// classesOfRows returns rows of classes that follow each other, each with this share of random bytes.
func classesOfRows(r *rand.Rand, each, rowBytes int, random ...float64) []byte {
	data := make([]byte, len(random)*each*rowBytes)
	for i, share := range random {
		for row := range each {
			of := data[(i*each+row)*rowBytes:][:rowBytes]
			for at := range int(share * float64(rowBytes)) {
				of[at] = byte(r.Uint32())
			}
		}
	}
	return data
}

// readsInRanges has New choose the targets of a table whose classes of rows shrink differently, and compares it with a plain array while rows of any class are
// updated, the table grows to its capacity, and it moves to one target.
func readsInRanges(t *testing.T, codec cache.Codec, rowBytes, devices int, more func(*cache.Options)) {
	lie := []cache.BuddyMemory{cache.BuddyHost, cache.BuddyPeer}[min(devices-1, rowBytes/4%2)] // both kinds are met among the row lengths
	r := rand.New(rand.NewPCG(22, uint64(60+devices)))
	each := 130 * devices
	model := classesOfRows(r, each, rowBytes, 0, 1, 0.3)
	rows := len(model) / rowBytes
	capacity := rows + r.IntN(100)
	c := openResident(t, bytes.Clone(model), rowBytes, codec, cache.ResidentOptions{MaxTarget: buddy.MaxTarget(rowBytes), Buddy: lie}, devices, func(o *cache.Options) {
		if more != nil {
			more(o)
		}
		o.Tables[0] = o.Tables[0].WithCapacity(int64(capacity))
		o.Host.Overlay = int64(90 * (rowBytes + 200))
	})
	of := stats(t, c).Tables[0].Resident
	if n := len(of.Ranges); n < 2 || of.OverflowRows > int64(rows)/3 {
		t.Fatalf("classes of rows have no ranges of their own: %+v", of)
	}
	checkRanges(t, of, capacity, rowBytes)
	checkModel(t, c, model, rowBytes)
	checkResidentStats(t, c, model, rowBytes)
	update := func(ids []int64) {
		t.Helper()
		fresh := residentRows(len(ids), rowBytes, r)
		if err := c.Update(ctx, 0, ids, fresh); err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if grown := int(id+1) * rowBytes; grown > len(model) {
				model = append(model, make([]byte, grown-len(model))...)
			}
			copy(model[int(id)*rowBytes:], fresh[i*rowBytes:][:rowBytes])
		}
		checkModel(t, c, model, rowBytes)
	}
	for range 4 {
		ids := make([]int64, 1+r.IntN(150))
		for i := range ids {
			ids[i] = int64(r.IntN(rows))
		}
		update(ids)
	}
	ids := []int64{int64(rows - 1)}
	for id := capacity - 1; id >= rows; id-- { // in any order
		ids = append(ids, int64(id))
	}
	update(ids)
	checkResidentStats(t, c, model, rowBytes)
	for _, target := range []int{buddy.MinTarget * (1 + r.IntN(buddy.MaxTarget(rowBytes)/buddy.MinTarget)), 0} {
		if err := c.Retarget(ctx, 0, target); err != nil {
			t.Fatal(err)
		}
		of := stats(t, c).Tables[0].Resident
		if target != 0 && (of.Ranges != nil || of.TargetBytes != target) {
			t.Errorf("moved to %d B: %+v", target, of)
		}
		if of.Ranges != nil {
			checkRanges(t, of, capacity, rowBytes)
		}
		update([]int64{int64(r.IntN(capacity))})
		checkResidentStats(t, c, model, rowBytes)
	}
}

// checkRanges checks that ranges cover a table of so many rows, and that the target is their mean.
func checkRanges(t *testing.T, s *cache.ResidentStats, rows, rowBytes int) {
	t.Helper()
	at, bytes := int64(0), 0.
	for _, of := range s.Ranges {
		if of.FirstRow != at || of.Rows <= 0 || of.TargetBytes%buddy.MinTarget != 0 || of.TargetBytes > buddy.MaxTarget(rowBytes) {
			t.Fatalf("ranges of %d rows: %+v", rows, s.Ranges)
		}
		at, bytes = at+of.Rows, bytes+float64(of.Rows)*float64(of.TargetBytes)
	}
	if mean := bytes / float64(rows); at != int64(rows) || mean < float64(s.TargetBytes)*0.98-1 || mean > float64(s.TargetBytes)*1.02+1 {
		t.Errorf("ranges of %d rows: %+v", rows, s)
	}
}

// A table of one target moves to one for each class of its rows, and again when the classes have changed places: when it is told, and by itself. Readers see
// what they should all the while. A range with too much overflow is enough, though few rows of the table have any.
func TestRetarget_ToRanges(t *testing.T) {
	for i, devices := range []int{1, 3} {
		byItself := i == 1
		t.Run(fmt.Sprintf("devices=%d", devices), func(t *testing.T) {
			const rowBytes = 256
			r := rand.New(rand.NewPCG(22, uint64(70+devices)))
			each := 192 * devices // ranges end where blocks of 64 local numbers do
			model := classesOfRows(r, each, rowBytes, 0.9, 0, 0, 0)
			rows := len(model) / rowBytes
			c := openResident(t, bytes.Clone(model), rowBytes, "ibp", cache.ResidentOptions{Target: 16, MaxTarget: 64 + 16, Retarget: byItself}, devices, func(o *cache.Options) {
				o.Host.Overlay = 90 * (rowBytes + 200)
			})
			// The table is to be in slots of 16 bytes but for one quarter of it: one length for all would be too long for the memory.
			inRanges := func(long int, byItself bool) {
				t.Helper()
				until := time.Now().Add(time.Minute)
				for {
					if !byItself {
						if err := c.Retarget(ctx, 0, 0); err != nil {
							t.Fatal(err)
						}
					}
					of := stats(t, c).Tables[0].Resident
					at, longest := int64(-1), 0
					for _, one := range of.Ranges {
						if one.TargetBytes > longest {
							at, longest = one.FirstRow, one.TargetBytes
						}
					}
					if longest > 200 && at/int64(each) == int64(long) && !of.PastMaxOverflow && of.OverflowRows == 0 {
						checkRanges(t, of, rows, rowBytes)
						break
					}
					if !byItself || time.Now().After(until) {
						t.Fatalf("class %d has no slots of its own: %+v", long, of)
					}
					time.Sleep(10 * time.Millisecond)
				}
				checkModel(t, c, model, rowBytes)
				checkResidentStats(t, c, model, rowBytes)
			}
			inRanges(0, false)
			for _, long := range []int{3, 1} {
				for class := range 4 {
					share := 0.
					if class == long {
						share = 0.9
					}
					ids := make([]int64, each)
					for j := range ids {
						ids[j] = int64(class*each + j)
					}
					fresh := classesOfRows(r, each, rowBytes, share)
					copy(model[class*each*rowBytes:], fresh)
					if err := c.Update(ctx, 0, ids, fresh); err != nil {
						t.Fatal(err)
					}
				}
				inRanges(long, byItself)
			}
		})
	}
}

func TestResident_ReadsInRanges(t *testing.T) {
	race.SkipSequential(t)
	for i, codec := range []cache.Codec{"ibp", "rank", "zipnn", "sparse"} {
		for _, devices := range []int{1, 3, slab.MaxSlabs} {
			rowBytes := []int{64, 256, 100, 1028}[i]
			t.Run(fmt.Sprintf("%s/%d/devices=%d", codec, rowBytes, devices), func(t *testing.T) { readsInRanges(t, codec, rowBytes, devices, nil) })
		}
	}
}

// Ranges have room for rows where one length of slots has none, and a budget that is too small names what is needed.
func TestResident_FitsInRanges(t *testing.T) {
	race.SkipSequential(t)
	const rowBytes, each = 256, 500
	r := rand.New(rand.NewPCG(22, 61))
	data := classesOfRows(r, each, rowBytes, 0, 1)
	options := func(budget int64) cache.Options {
		return cache.Options{
			Tables: []cache.Table{fromBytes(t, "features", data, rowBytes).WithCodec("ibp").Resident()}, Budget: budget,
			Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: 1},
		}
	}
	_, err := cache.New(options(80_000))
	var least int64
	if err != nil {
		_, after, _ := bytes.Cut([]byte(err.Error()), []byte("must be at least "))
		fmt.Sscan(string(after), &least)
	}
	const want = "cache: budget too small: table features, resident with at most 30 % of overflowing rows, needs slots of 16 to 256 B"
	if err == nil || !bytes.HasPrefix([]byte(err.Error()), []byte(want)) || least < 1000 || least > 2*each*(100+8) {
		t.Fatalf("%v, want %s", err, want)
	}
	c := newCache(t, options(least))
	if s := stats(t, c); len(s.Tables[0].Resident.Ranges) != 2 || s.MetadataBytes+s.ResidentBytes > least {
		t.Errorf("%+v in %d bytes", s.Tables[0].Resident, least)
	}
	checkModel(t, c, data, rowBytes)
	if _, err := cache.New(options(least - 1)); err == nil {
		t.Error("one byte less fits")
	}
	// A target that is given is that of all rows.
	given := openResident(t, data, rowBytes, "ibp", cache.ResidentOptions{Target: 64}, 1, nil)
	if s := stats(t, given).Tables[0].Resident; s.Ranges != nil || s.TargetBytes != 64 {
		t.Errorf("a given target: %+v", s)
	}
	// Without MaxTarget, Retarget has the memory of the ranges.
	for target, fits := range map[int]bool{16: true, 64: true, 160: false} {
		if err := c.Retarget(ctx, 0, target); (err == nil) != fits {
			t.Errorf("moved to %d B: %v", target, err)
		}
		checkModel(t, c, data, rowBytes)
	}
}
