package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// residentRows returns so many rows of all kinds.
func residentRows(rows, rowBytes int, r *rand.Rand) []byte {
	data := make([]byte, rows*rowBytes)
	for i := range rows {
		residentRow(data[i*rowBytes:][:rowBytes], r)
	}
	return data
}

// checkModel compares all rows of table 0 with those that they should be.
func checkModel(t *testing.T, c *cache.Cache, want []byte, rowBytes int) {
	t.Helper()
	out := make([]byte, len(want))
	if err := c.Gather(ctx, cache.Request{Rows: allRows(len(want) / rowBytes), Out: out}); err != nil {
		t.Fatal(err)
	}
	for i := range len(want) / rowBytes {
		if !bytes.Equal(out[i*rowBytes:][:rowBytes], want[i*rowBytes:][:rowBytes]) {
			t.Fatalf("row %d: wrong bytes", i)
		}
	}
}

// A table reads as a plain array does while it moves between random targets and rows are updated: rows of many lengths, 1 to 8 devices, few and many places
// in the overlay. Gathers see the old or the new version of a row, never a mixture.
func TestRetarget_ReadsAsAnArray(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 40))
	for i, codec := range []cache.Codec{"ibp", "none", "rank", "zipnn", "sparse"} {
		rowBytes := []int{64, 100, 256, 1028, 20}[i]
		for j := range gputest.Few(4, 2) {
			devices, rows := 1+r.IntN(slab.MaxSlabs), 60+r.IntN(200)
			if j == 0 {
				devices = 1
			}
			data := residentRows(rows, rowBytes, r)
			overlay := int64([]int{4 * (rowBytes + 200), 60 * (rowBytes + 200)}[j%2])
			t.Run(fmt.Sprintf("%s/%d/devices=%d/overlay=%d", codec, rowBytes, devices, overlay), func(t *testing.T) {
				model := bytes.Clone(data)
				capacity := rows + r.IntN(50)
				o := cache.ResidentOptions{Target: 16 * (1 + r.IntN(buddy.MaxTarget(rowBytes)/16)), MaxTarget: buddy.MaxTarget(rowBytes)}
				if i%2 == 0 && devices > 1 {
					o.Buddy = cache.BuddyPeer
				}
				c := openResident(t, data, rowBytes, codec, o, devices, func(o *cache.Options) {
					o.Host.Overlay = overlay
					o.Tables[0] = o.Tables[0].WithCapacity(int64(capacity))
				})
				versions := make([][][]byte, rows) // that a row has had
				for i := range versions {
					versions[i] = [][]byte{bytes.Clone(data[i*rowBytes:][:rowBytes])}
				}
				var known sync.Mutex
				stop := make(chan struct{})
				var readers sync.WaitGroup
				end := sync.OnceFunc(func() {
					close(stop)
					readers.Wait()
				})
				defer end()
				readers.Go(func() {
					out := make([]byte, rows*rowBytes)
					for {
						select {
						case <-stop:
							return
						default:
						}
						if err := c.Gather(ctx, cache.Request{Rows: allRows(rows), Out: out}); err != nil {
							t.Error(err)
							return
						}
						known.Lock()
						for i := range rows {
							got, ok := out[i*rowBytes:][:rowBytes], false
							for _, v := range versions[i] {
								ok = ok || bytes.Equal(v, got)
							}
							if !ok {
								t.Errorf("row %d is no version of it", i)
								known.Unlock()
								return
							}
						}
						known.Unlock()
					}
				})
				updates := rand.New(rand.NewPCG(uint64(rowBytes), uint64(devices)))
				readers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						n := 1 + updates.IntN(20)
						ids, fresh := make([]int64, n), make([]byte, n*rowBytes)
						known.Lock()
						for i, id := range updates.Perm(rows)[:n] {
							ids[i] = int64(id)
							residentRow(fresh[i*rowBytes:][:rowBytes], updates)
							versions[id] = append(versions[id], bytes.Clone(fresh[i*rowBytes:][:rowBytes]))
							copy(model[id*rowBytes:], fresh[i*rowBytes:][:rowBytes])
						}
						known.Unlock()
						if err := c.Update(ctx, 0, ids, fresh); err != nil {
							t.Error(err)
							return
						}
					}
				})
				for range gputest.Few(8, 4) {
					target := 16 * (1 + r.IntN(buddy.MaxTarget(rowBytes)/16))
					if r.IntN(3) == 0 { // cut short
						some, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(4000))*time.Microsecond)
						if err := c.Retarget(some, 0, target); err != nil && !errors.Is(err, context.DeadlineExceeded) {
							t.Fatal(err)
						}
						cancel()
						continue
					}
					if err := c.Retarget(ctx, 0, target); err != nil {
						t.Fatal(err)
					}
					s, err := c.Stats()
					if err != nil {
						t.Fatal(err)
					}
					of := s.Tables[0].Resident
					if over := buddy.Over(target, rowBytes); of.TargetBytes != target || of.BuddyBytes < int64(over*capacity) || of.BuddyBytes > int64(over*(capacity+devices)+devices*slab.TailSlack) {
						t.Fatalf("moved to %d B: %+v", target, of)
					}
				}
				end()
				if t.Failed() {
					return
				}
				checkModel(t, c, model, rowBytes)
				if capacity > rows { // the rows behind the end have moved, too
					fresh := residentRows(capacity-rows, rowBytes, r)
					if err := c.Update(ctx, 0, allRows(capacity)[rows:], fresh); err != nil {
						t.Fatal(err)
					}
					model = append(model, fresh...)
					checkModel(t, c, model, rowBytes)
				}
				if err := c.Retarget(ctx, 0, 16); err != nil {
					t.Fatal(err)
				}
				checkResidentStats(t, c, model, rowBytes)
				checkModel(t, c, model, rowBytes)
			})
		}
	}
}

// A table becomes longer while places beyond its end, which nobody has written, are on their way to another target.
func TestRetarget_TableBecomesLonger(t *testing.T) {
	const rows, rowBytes = 10, 64
	capacity := gputest.Few(6000, 3000)
	r := rand.New(rand.NewPCG(22, 44))
	model := residentRows(rows, rowBytes, r)
	c := openResident(t, bytes.Clone(model), rowBytes, "ibp", cache.ResidentOptions{Target: 16, MaxTarget: 64}, 2, func(o *cache.Options) {
		o.Host.Overlay = 256 << 10
		o.Tables[0] = o.Tables[0].WithCapacity(int64(capacity))
	})
	grown := make(chan struct{})
	var mover sync.WaitGroup
	mover.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-grown:
				return
			default:
			}
			if err := c.Retarget(ctx, 0, []int{64, 16}[i%2]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for len(model)/rowBytes+50 <= capacity {
		fresh := residentRows(1+r.IntN(50), rowBytes, r)
		length := len(model) / rowBytes
		model = append(model, fresh...)
		if err := c.Update(ctx, 0, allRows(len(model) / rowBytes)[length:], fresh); err != nil {
			t.Error(err)
			break
		}
	}
	close(grown)
	mover.Wait()
	checkModel(t, c, model, rowBytes)
	checkResidentStats(t, c, model, rowBytes)
}

// The contexts of an Update and of another Retarget bound their waiting for a Retarget that waits for batches.
func TestRetarget_OthersEndWithTheirContexts(t *testing.T) {
	const rows, rowBytes = 3000, 64
	data := residentRows(rows, rowBytes, rand.New(rand.NewPCG(22, 45)))
	c := openResident(t, data, rowBytes, "ibp", cache.ResidentOptions{Target: 64}, 1, func(o *cache.Options) { o.Host.Overlay = 1 })
	moved := make(chan error, 1)
	go func() { moved <- c.Retarget(ctx, 0, 16) }()
	for {
		s, err := c.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if s.Tables[0].Resident.TargetBytes < 64 { // some rows have moved
			break
		}
	}
	end := cache.HoldEpoch(c)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- c.Update(short, 0, allRows(rows), data) }()
	go func() { ended <- c.Retarget(short, 0, 32) }()
	for range 2 {
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("beside a Retarget that waits: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("others wait for the Retarget")
		}
	}
	end()
	if err := <-moved; err != nil {
		t.Error(err)
	}
	checkModel(t, c, data, rowBytes)
}

// Close ends a Retarget that is under way.
func TestRetarget_EndsWithTheCache(t *testing.T) {
	const rows, rowBytes = 20000, 64
	data := residentRows(rows, rowBytes, rand.New(rand.NewPCG(22, 41)))
	for range 5 {
		table, err := cache.FromBytes("features", gputest.DType(rowBytes), data, rowBytes)
		if err != nil {
			t.Fatal(err)
		}
		c, err := cache.New(cache.Options{
			Tables: []cache.Table{table.WithCodec("ibp").ResidentWith(cache.ResidentOptions{Target: 48})}, Budget: 8 << 20,
			Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: 2}, Host: cache.HostOptions{Overlay: 4 << 10},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			for {
				if err := errors.Join(c.Retarget(ctx, 0, 16), c.Retarget(ctx, 0, 48)); err != nil {
					ended <- err
					return
				}
			}
		}()
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, cache.ErrClosed) {
			t.Errorf("the call ends with %v", err)
		}
	}
}

// A table that is to be moved by itself is, when updates make more rows longer than the target than MaxOverflow says; the targets are those that New would
// choose: one for the rows that have become longer, and one for the others.
func TestRetarget_ByItself(t *testing.T) {
	const rows, rowBytes = 500, 256
	r := rand.New(rand.NewPCG(22, 42))
	data := make([]byte, rows*rowBytes)
	c := openResident(t, data, rowBytes, "ibp", cache.ResidentOptions{Target: 48, MaxTarget: rowBytes, MaxOverflow: 0.25, Retarget: true}, 2, nil)
	stats := func() *cache.ResidentStats {
		s, err := c.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.Tables[0].Resident
	}
	if s := stats(); s.PastMaxOverflow || s.OverflowRows != 0 {
		t.Fatalf("at first: %+v", s)
	}
	fresh := make([]byte, rows/2*rowBytes)
	for i := range fresh {
		fresh[i] = byte(r.Uint32())
	}
	if err := c.Update(ctx, 0, allRows(rows/2), fresh); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Minute)
	for { // buddy memory is freed last
		s := stats()
		places := int64(0)
		for _, of := range s.Ranges {
			if over := int64(buddy.Over(of.TargetBytes, rowBytes)); over > 0 {
				places += of.Rows*over + 2*slab.TailSlack
			}
		}
		if len(s.Ranges) == 2 && s.Ranges[0].TargetBytes == rowBytes && s.OverflowRows == 0 && s.BuddyBytes == places && !s.PastMaxOverflow {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("not moved: %+v", s)
		}
		time.Sleep(10 * time.Millisecond)
	}
	checkModel(t, c, append(fresh, data[len(fresh):]...), rowBytes)
}

func TestRetarget_RefusesWhatCannotBe(t *testing.T) {
	const rows, rowBytes = 100, 128
	data := make([]byte, rows*rowBytes)
	r := rand.New(rand.NewPCG(22, 43))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	c := openResident(t, data, rowBytes, "ibp", cache.ResidentOptions{Target: 64, MaxTarget: 96}, 1, func(o *cache.Options) {
		o.Tables = append(o.Tables, fromBytes(t, "cached", data, rowBytes))
	})
	for _, one := range []struct {
		table, target int
		is            error
		want          string
	}{
		{0, 20, cache.ErrOptions, "table features: target (20 B) must be a multiple of 16, or 0"},
		{0, -16, cache.ErrOptions, "target (-16 B)"},
		{0, 112, cache.ErrBudget, "table features: target (112 B) must be at most 96 B, for which device memory was taken (MaxTarget)"},
		{0, 0, cache.ErrBudget, "table features needs slots of more than 96 B for at most 30 % of overflowing rows"},
		{1, 16, cache.ErrOptions, "table cached must be resident"},
		{2, 16, cache.ErrTable, ""},
	} {
		if err := c.Retarget(ctx, one.table, one.target); !errors.Is(err, one.is) || !strings.Contains(err.Error(), one.want) {
			t.Errorf("table %d to %d: %v, want %q", one.table, one.target, err, one.want)
		}
	}
	if err := c.Retarget(ctx, 0, 96); err != nil {
		t.Error(err)
	}
	if s, err := c.Stats(); err != nil || s.Tables[0].Resident.MaxTargetBytes != 96 {
		t.Errorf("MaxTargetBytes is not 96: %+v, %v", s.Tables[0].Resident, err)
	}
	checkModel(t, c, data, rowBytes)
}
