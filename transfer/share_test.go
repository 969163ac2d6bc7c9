package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
)

// sharing is a table in a host tier whose misses a device shares with the host's processors.
type sharing struct {
	t      testing.TB
	d      device.Device
	tier   *Tier
	data   []byte
	rows   kernels.HostRows
	codec  kernels.Codec
	sharer *Sharer
	table  *ShareTable

	corrupt map[int64]bool // rows that do not decode
}

func newSharing(t testing.TB, d device.Device, rows, rowBytes int, mode Mode, codec string, o ShareOptions) *sharing {
	t.Helper()
	return newSharingOf(t, d, rowsOf(rows, rowBytes, 1), rowBytes, Options{Codec: codec, Mode: mode}, o)
}

// newSharingOf is newSharing for given rows.
func newSharingOf(t testing.TB, d device.Device, data []byte, rowBytes int, load Options, o ShareOptions) *sharing {
	t.Helper()
	s := &sharing{t: t, d: d, data: data}
	load.Workers, load.OnHost = 2, true
	var err error
	if s.tier, err = Load(d, SourceOf(s.data, rowBytes), load); err != nil {
		t.Fatal(err)
	}
	if s.rows, s.codec, err = s.tier.Attach(d); err != nil {
		t.Fatal(err)
	}
	o.Always = true
	if s.sharer, err = NewSharer(d, o); err != nil {
		t.Fatal(err)
	}
	s.table = s.sharer.Table(s.rows, s.codec)
	t.Cleanup(func() {
		s.sharer.Close()
		Detach(d, s.rows, s.codec)
		s.tier.Close()
	})
	return s
}

// gather reads the rows as misses of one batch by a plan.
func (s *sharing) gather(plan *Plan, rows []int64) error {
	return s.gatherBy(rows, func(stream device.Stream, b Batch, event device.Event) error {
		return plan.Enqueue(stream, s.rows, s.codec, b, event)
	})
}

// gatherAlone does so by the same kernel without a share.
func (s *sharing) gatherAlone(rows []int64) error {
	return s.gatherBy(rows, func(stream device.Stream, b Batch, _ device.Event) error {
		return stream.Launch(&kernels.ShareFetch{Fetch: kernels.Fetch{
			Misses: b.Found, AtBack: true, Counters: b.Counters, Tier: s.rows, Codec: s.codec, Out: b.Out,
		}})
	})
}

// gatherBy reads the rows as misses of one batch on a stream of its own, at the back of a list that is longer, and checks all
// that the batch leaves. Rows that do not decode are counted, their output is not looked at.
func (s *sharing) gatherBy(rows []int64, enqueue func(device.Stream, Batch, device.Event) error) error {
	rowBytes := s.tier.RowBytes()
	n := len(rows)
	list := make([]kernels.Found, 2*n+1)
	want, moved, corrupt := make([]byte, n*rowBytes), uint64(0), 0
	for i, r := range rows {
		list[n+1+i] = kernels.Found{Word: uint64(r), Position: uint32(i)}
		if s.corrupt[r] {
			corrupt++
			continue
		}
		copy(want[i*rowBytes:], s.data[int(r)*rowBytes:][:rowBytes])
		stored, _, err := s.tier.Stored(r)
		if err != nil {
			return err
		}
		moved += uint64(len(stored))
	}
	var buffers []device.Buffer
	alloc := func(bytes int) device.Buffer {
		b, err := s.d.Alloc(int64(bytes), "test")
		if err != nil {
			s.t.Error(err)
		}
		buffers = append(buffers, b)
		return b
	}
	defer func() {
		for _, b := range buffers {
			s.d.Free(b)
		}
	}()
	batch := Batch{
		Found: alloc(len(list) * kernels.FoundBytes), Ordered: alloc(len(list) * kernels.FoundBytes), Counters: alloc(kernels.CountersBytes),
		Buckets: alloc(kernels.OrderBytes), Out: alloc(max(n, 1) * rowBytes), Reading: Reading{Ordered: true, Share: s.table},
	}
	counters := []kernels.Counters{{Misses: uint32(n)}}
	stream, err := s.d.NewStream()
	if err != nil {
		return err
	}
	defer stream.Close()
	event, err := s.d.NewEvent()
	if err != nil {
		return err
	}
	defer event.Close()
	got := make([]byte, len(want))
	err = errors.Join(
		device.Upload(s.d, batch.Found, asBytes(list)), device.Upload(s.d, batch.Counters, asBytes(counters)),
		enqueue(modelled(s.d, stream), batch, event), stream.Synchronize(),
		device.Download(s.d, got, batch.Out.Slice(0, int64(n*rowBytes))), device.Download(s.d, asBytes(counters), batch.Counters),
	)
	if err != nil {
		return err
	}
	for i, r := range rows {
		if s.corrupt[r] {
			clear(got[i*rowBytes:][:rowBytes])
		}
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d rows of %d bytes: the output differs", n, rowBytes)
	}
	if c := counters[0]; int(c.Corrupt) != corrupt || corrupt > 0 && !s.corrupt[rows[c.CorruptPosition]] || c.HostBytes != moved || c.Share != 0 {
		return fmt.Errorf("counters are %+v, want %d host bytes and %d corrupt rows", c, moved, corrupt)
	}
	return nil
}

func (s *sharing) random(n int, r *rand.Rand) []int64 {
	rows := make([]int64, n)
	for i := range rows {
		rows[i] = r.Int64N(s.tier.Rows())
		if r.IntN(4) == 0 {
			rows[i] = rows[r.IntN(i+1)]
		}
	}
	return rows
}

// onDevices runs a test on the host backend and, where there is one, on a GPU.
func onDevices(t *testing.T, test func(t *testing.T, d device.Device)) {
	t.Run("host", func(t *testing.T) { test(t, newDevice()) })
	t.Run("cuda", func(t *testing.T) { test(t, gputest.Open(t)) })
}

func TestShare_RowsOfEveryKind(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		for _, c := range []struct {
			rowBytes int
			codec    string
			mode     Mode
		}{{256, "ibp4", InPlace}, {256, "ibp4", Packed}, {100, "ibp8", InPlace}, {260, "ibp4", InPlace}, {37, "none", InPlace}, {512, "ibp8", Packed}, {768, "ibp4", InPlace}, {31, "ibp4", Packed},
			{772, "ibp4", Packed}, {1024, "none", InPlace}, {1024, "ibp8", InPlace}, {1001, "none", Packed}, {2408, "ibp4", InPlace}, {4096, "ibp8", Packed}} {
			t.Run(fmt.Sprintf("row=%d/%s/%v", c.rowBytes, c.codec, c.mode), func(t *testing.T) {
				s := newSharing(t, d, 3000, c.rowBytes, c.mode, c.codec, ShareOptions{Threads: 3, Piece: 8, Unit: 4, StageBytes: 1 << 20, Timeout: time.Second})
				r := rand.New(rand.NewPCG(1, uint64(c.rowBytes)))
				plan := new(Plan)
				sizes := []int{0, 1, 7, 8, 9, 63, 64, 65, 1000, 5001}
				if testing.Short() {
					sizes = []int{0, 1, 9, 65, 1001}
				}
				for _, n := range sizes {
					rows := s.random(n, r)
					if err := s.gather(plan, rows); err != nil {
						t.Fatalf("batch of %d: %v", n, err)
					}
					if err := s.gatherAlone(rows); err != nil {
						t.Fatalf("batch of %d alone: %v", n, err)
					}
				}
				if st := s.table.Stats(); st.Strategy != "shared" || int(st.Shared) != len(sizes) {
					t.Errorf("%+v", st)
				}
			})
		}
	})
}

// TestShare_EveryCodec has the rows of every codec of the registry shared, by either width of tiles, in place and packed.
func TestShare_EveryCodec(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		for _, name := range registry.Concrete() {
			t.Run(name, func(t *testing.T) {
				shrunk := int64(0)
				for i, of := range []dtype.Type{dtype.Float32, dtype.BFloat16, dtype.Float64} {
					for j, rowBytes := range []int{256, 520, 1032} {
						t.Run(fmt.Sprintf("%v/row=%d/%v", of, rowBytes, Mode((i+j)%2)), func(t *testing.T) {
							shrunk += testShareCodec(t, d, rowBytes, Options{Codec: name, DType: of, Mode: Mode((i + j) % 2)})
						})
					}
				}
				if shrunk == 0 {
					t.Errorf("%s: no row shrinks", name)
				}
			})
		}
	})
}

// testShareCodec shares rows of a codec, and returns how many of the table shrink.
func testShareCodec(t *testing.T, d device.Device, rowBytes int, load Options) int64 {
	const rows = 200 // few: what ibpc learns from 1000 takes most of a minute under the race detector
	var data []byte
	if load.Codec == "parts" {
		load.DType = gputest.Parts(load.DType, rowBytes)
		data = gputest.PartsRows(load.DType, rows, 1)
	} else {
		data = gputest.FloatRows(load.DType, rows, rowBytes, 1)
	}
	if _, err := registry.Train(load.Codec, data[:8*rowBytes], rowBytes, load.DType); errors.Is(err, codec.ErrDType) {
		return 0
	}
	s := newSharingOf(t, d, data, rowBytes, load, ShareOptions{Threads: 2, Piece: 8, Unit: 4, StageBytes: 1 << 20, Timeout: time.Second})
	r, plan := rand.New(rand.NewPCG(1, uint64(rowBytes))), new(Plan)
	for _, n := range []int{9, 1003} {
		if err := s.gather(plan, s.random(n, r)); err != nil {
			t.Fatalf("batch of %d: %v", n, err)
		}
	}
	if st := s.table.Stats(); st.Strategy != "shared" || st.Shared != 2 {
		t.Errorf("%+v", st)
	}
	return s.tier.Rows() - s.tier.Totals().RawRows
}

// TestShare_CorruptRowsAreCounted lets rows lose their participation bits: they would be longer than a row may be.
func TestShare_CorruptRowsAreCounted(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		for _, rowBytes := range []int{64, 256, 512, 1024, 2408} {
			s := newSharing(t, d, 2000, rowBytes, InPlace, "ibp4", ShareOptions{Threads: 2, Piece: 16, Unit: 8, Timeout: time.Second})
			r := rand.New(rand.NewPCG(6, 6))
			s.corrupt = map[int64]bool{}
			for range 300 {
				row := r.Int64N(s.tier.Rows())
				stored, compressed := s.tier.host.Stored(row)
				if !compressed {
					continue
				}
				clear(stored)
				if _, err := s.tier.Codec().Decode(make([]byte, rowBytes), stored); err == nil {
					t.Fatal("a row without participation bits decodes")
				}
				s.corrupt[row] = true
			}
			plan := new(Plan)
			for range gputest.Few(5, 3) {
				s.setFraction(0.5)
				if err := s.gather(plan, s.random(gputest.Few(3000, 1000), r)); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestShare_HostTakesPart checks that rows do come through the host, and that only one side fetches where the other's part is
// all or nothing.
func TestShare_HostTakesPart(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		s := newSharing(t, d, 20000, 256, InPlace, "ibp4", ShareOptions{Threads: 2, Piece: 16, Unit: 8, Timeout: 10 * time.Second})
		r := rand.New(rand.NewPCG(2, 2))
		plan := new(Plan)
		misses := gputest.Few(4000, 1000)
		for _, fraction := range []float64{0, 0.5, 1} {
			staged := uint32(0)
			// A share that opens before the host is done with the last one has none of the host's, and so may others where processors are
			// busy.
			deadline := time.Now().Add(time.Minute)
			for i := 0; i < gputest.Few(20, 3) || fraction > 0 && staged == 0 && time.Now().Before(deadline); i++ {
				s.setFraction(fraction)
				if err := s.gather(plan, s.random(misses, r)); err != nil {
					t.Fatal(err)
				}
				times, ok := s.sharer.host.LastTimes()
				if !ok || int(times.Misses) != misses || times.GaveUp != 0 {
					t.Fatalf("fraction %v: %+v, %v", fraction, times, ok)
				}
				staged = max(staged, times.Staged)
				time.Sleep(time.Millisecond)
			}
			if fraction == 0 && staged != 0 || fraction > 0 && staged == 0 || staged > uint32(float64(misses)*fraction) {
				t.Errorf("fraction %v: %d rows came through the host", fraction, staged)
			}
		}
	})
}

func (s *sharing) setFraction(f float64) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.table.mu.fraction = f
	if times, ok := s.sharer.host.LastTimes(); ok {
		s.table.mu.stamp = times.Stamp // what is learnt must not change it
	}
}

// TestShare_StalledWorker lets workers sleep over pieces they have claimed: the device gives up waiting and fetches them, and
// the next batches are right too.
func TestShare_StalledWorker(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		var once sync.Once
		stalled := make(chan struct{})
		s := newSharing(t, d, 5000, 128, InPlace, "ibp4", ShareOptions{
			Threads: 2, Piece: 16, Unit: 16, Timeout: time.Millisecond,
			stall: func(int, bool) { once.Do(func() { close(stalled); time.Sleep(100 * time.Millisecond) }) },
		})
		r := rand.New(rand.NewPCG(3, 3))
		plan := new(Plan)
		after := 5
		for deadline := time.Now().Add(time.Minute); after > 0; {
			s.setFraction(0.9)
			if err := s.gather(plan, s.random(2000, r)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-stalled:
				after--
			default:
				if time.Now().After(deadline) {
					t.Fatal("no worker took part")
				}
			}
		}
	})
}

// TestShare_LateWorker puts a worker aside with a piece it has claimed: the first worker gathers it too, and neither the batch
// nor the device waits for the late one.
func TestShare_LateWorker(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		late, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		s := newSharing(t, d, 5000, 128, InPlace, "ibp4", ShareOptions{
			Threads: 2, Piece: 16, Unit: 16, Timeout: time.Minute,
			stall: func(_ int, first bool) {
				if first {
					time.Sleep(50 * time.Microsecond) // so that the other one finds pieces to claim
					return
				}
				once.Do(func() { close(late); <-release })
			},
		})
		r := rand.New(rand.NewPCG(8, 8))
		plan := new(Plan)
		gather := func() abi.ShareTimes {
			s.setFraction(0.9)
			if err := s.gather(plan, s.random(2000, r)); err != nil {
				t.Fatal(err)
			}
			times, ok := s.sharer.host.LastTimes()
			if !ok || times.GaveUp != 0 {
				t.Fatalf("%+v, %v", times, ok)
			}
			return times
		}
		isLate := func() bool {
			select {
			case <-late:
				return true
			default:
				return false
			}
		}
		for deadline := time.Now().Add(time.Minute); !isLate(); {
			gather()
			if time.Now().After(deadline) {
				t.Fatal("only one worker took part")
			}
		}
		if times := gather(); times.Staged != 0 {
			t.Errorf("a share opened while a worker was at the last one: %+v", times)
		}
		close(release)
		for deadline := time.Now().Add(time.Minute); gather().Staged == 0; {
			if time.Now().After(deadline) {
				t.Fatal("the host took part no more")
			}
		}
	})
}

// TestShare_WorkersStop ends the workers while batches run: they are fetched without.
func TestShare_WorkersStop(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		s := newSharing(t, d, 5000, 128, InPlace, "ibp4", ShareOptions{Threads: 2, Piece: 16, Unit: 8, Timeout: time.Millisecond})
		var wg sync.WaitGroup
		for g := range 3 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(4, uint64(g)))
				plan := new(Plan)
				for range gputest.Few(40, 10) {
					if err := s.gather(plan, s.random(1000, r)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
		s.sharer.closing.Store(true)
		atomic.StoreUint32(&s.sharer.work.stopped, 1)
		wg.Wait()
	})
}

func TestShare_FailedCopies(t *testing.T) {
	s := newSharing(t, failingDevice{Device: newDevice()}, 5000, 128, InPlace, "ibp4", ShareOptions{Threads: 2, Piece: 16, Unit: 8, Timeout: time.Millisecond})
	r := rand.New(rand.NewPCG(5, 5))
	plan := new(Plan)
	gather := func() {
		if err := s.gather(plan, s.random(1000, r)); err != nil {
			t.Fatal(err)
		}
	}
	// On a busy machine the workers may come too late for many batches, and then write nothing that could fail.
	for deadline := time.Now().Add(time.Minute); !s.sharer.failed.Load() && time.Now().Before(deadline); {
		gather()
	}
	gather()
	if st := s.table.Stats(); !s.sharer.failed.Load() || st.Alone == 0 {
		t.Errorf("copies failed: %v; %+v", s.sharer.failed.Load(), st)
	}
}

// failingDevice's streams store the first word and no other.
type failingDevice struct{ device.Device }

func (d failingDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return &failingStream{Stream: s, writer: s.(device.ValueWriter)}, err
}

type failingStream struct {
	device.Stream
	writer device.ValueWriter
	stored int
}

func (s *failingStream) WriteValue32(dst device.Buffer, value uint32) error {
	if s.stored++; s.stored > 1 {
		return errors.New("no more words today")
	}
	return s.writer.WriteValue32(dst, value)
}

// TestShare_FetchNotLaunched opens a share that nothing will fetch or close: the batch fails, the next ones are fetched
// without the workers, who stop looking for it.
func TestShare_FetchNotLaunched(t *testing.T) {
	s := newSharing(t, newDevice(), 5000, 128, InPlace, "ibp4", ShareOptions{Threads: 2, Piece: 16, Unit: 8, Timeout: time.Millisecond})
	r := rand.New(rand.NewPCG(7, 7))
	plan := new(Plan)
	err := s.gatherBy(s.random(1000, r), func(stream device.Stream, b Batch, event device.Event) error {
		return plan.Enqueue(stuck{stream, "share-fetch"}, s.rows, s.codec, b, event)
	})
	if !errors.Is(err, errLaunch) {
		t.Fatalf("got %v, want the launch's error", err)
	}
	for range 3 {
		if err := s.gather(plan, s.random(1000, r)); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.table.Stats(); st.Alone != 3 {
		t.Errorf("%+v", st)
	}
	for deadline := time.Now().Add(time.Minute); atomic.LoadUint32(&s.sharer.work.working) != 0 || atomic.LoadUint32(&s.sharer.work.hot) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("workers still look for the share")
		}
	}
}

func TestSharer_BadOptions(t *testing.T) {
	for _, c := range []struct {
		o    ShareOptions
		want string
	}{
		{ShareOptions{Piece: 10, Unit: 3}, "transfer: Piece (10 rows) must be a multiple of Unit (3 rows)"},
		{ShareOptions{Piece: 96}, "transfer: Piece (96 rows) must be a multiple of Unit (64 rows)"},
		{ShareOptions{Piece: -64}, "transfer: Piece (-64 rows) must be a multiple of Unit (64 rows)"},
		{ShareOptions{Unit: -64}, "transfer: Piece (256 rows) must be a multiple of Unit (-64 rows)"},
		{ShareOptions{Threads: -1}, "transfer: Threads (-1) must be 1 to 1024"},
		{ShareOptions{Threads: 1025}, "transfer: Threads (1025) must be 1 to 1024"},
		{ShareOptions{StageBytes: -1}, "transfer: StageBytes (-1 B) must be positive"},
		{ShareOptions{Timeout: -time.Second}, "transfer: Timeout (-1s) must not be negative"},
	} {
		s, err := NewSharer(newDevice(), c.o)
		if err == nil {
			s.Close()
			t.Errorf("%+v is taken", c.o)
		} else if err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.o, err, c.want)
		}
	}
}

func TestSharer_LeavesProcessorsFree(t *testing.T) {
	for _, c := range []struct{ threads, processors, near, want int }{
		{15, 16, 0, 12}, {15, 16, 16, 12}, {15, 32, 0, 15}, {15, 32, 16, 12}, {15, 32, 8, 15}, {15, 19, 0, 15}, {15, 10, 0, 8}, {15, 2, 2, 8},
		{8, 8, 8, 8}, {4, 2, 0, 4}, {1, 1, 1, 1}, {1024, 128, 0, 124},
	} {
		if got := activeThreads(c.threads, c.processors, c.near); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestShareTable_Learns feeds the planner with how shares went.
func TestShareTable_Learns(t *testing.T) {
	d := newDevice()
	s, err := NewSharer(d, ShareOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mem := device.Buffer{}.Slice(0, unitsTier)
	if s.Table(kernels.HostRows{Mem: mem, Stride: shareRow + 4, RowBytes: shareRow + 4}, kernels.Codec{}) != nil {
		t.Error("long rows are shared")
	}
	if s.Table(kernels.HostRows{Mem: mem, RowBytes: shareRow}, kernels.Codec{}) == nil {
		t.Error("packed rows are not shared")
	}
	if s.Table(kernels.HostRows{Mem: mem.Slice(0, shareTier-1), Stride: 256, RowBytes: 256}, kernels.Codec{}) != nil {
		t.Error("small tables are shared")
	}
	for _, c := range []struct {
		name          string
		alone, host   uint64 // nanoseconds a row, of the device alone and of the host alone
		shared        float64
		late          bool // the host never gathers anything: the device gives up
		dropped       bool
		fractionFloor float64
		fractionCeil  float64
	}{
		{"the host is twice as fast", 30, 15, 12, false, false, 0.6, 0.73},
		{"the host is slow", 20, 180, 19, false, false, 0.05, 0.15},
		{"sharing does not pay", 20, 20, 25, false, true, 0, 1},
		{"the host never comes", 20, 20, 25, true, true, 0, 0},
	} {
		table := s.Table(kernels.HostRows{Mem: mem, Stride: 256, RowBytes: 256}, kernels.Codec{})
		const rows = 200_000
		shared := 0
		for i := range 200 {
			terms, ok := table.next(rows)
			if !ok {
				t.Fatalf("%s: not measured", c.name)
			}
			times := abi.ShareTimes{Stamp: uint32(i + 1), Tier: table.terms.Tier, Misses: rows, Nanos: c.alone * rows, OwnNanos: c.alone * rows}
			if terms.Fraction != 0 {
				shared++
				times.Staged = uint32(uint64(rows) * uint64(terms.Fraction) >> 16)
				times.Nanos = uint64(c.shared * rows)
				times.HostNanos = uint64(times.Staged) * c.host
				times.OwnNanos = uint64(rows-times.Staged) * c.alone
				if c.late {
					times.Taken, times.Staged, times.HostNanos, times.GaveUp = times.Staged, 0, 0, 1
				}
			}
			setTimes(s.host, times)
		}
		st := table.Stats()
		if (st.Strategy != "shared") != c.dropped || st.Fraction < c.fractionFloor || st.Fraction > c.fractionCeil || shared == 0 || shared == 200 || c.late != (st.GaveUp != 0) {
			t.Errorf("%s: %d of 200 shared, %+v", c.name, shared, st)
		}
	}
	if st := (*ShareTable)(nil).Stats(); st.Strategy != "zero-copy" {
		t.Errorf("without: %+v", st)
	}
}

// TestShareTable_GivenUpForFetch: where the device reads misses by kernels.Fetch unless they are shared, batches after sharing was given up are left to it, but
// for probes and the batch behind each. Probes are compared with what batches without sharing take now, not with what they took when sharing was given up.
func TestShareTable_GivenUpForFetch(t *testing.T) {
	s, err := NewSharer(newDevice(), ShareOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tier := kernels.HostRows{Mem: device.Buffer{}.Slice(0, shareTier), Stride: 256, RowBytes: 256}
	if BeyondTranslation(tier) {
		t.Fatal("the table is read by units")
	}
	const rows = 200_000
	stamp := uint32(0)
	for _, later := range []struct {
		name          string
		alone, shared uint64 // nanoseconds a miss
		gaveUp        uint32
		begins        bool
	}{
		{"sharing pays", 20, 15, 0, true},
		{"the device is busy", 40, 30, 0, true},
		{"sharing still does not pay", 20, 25, 0, false},
		{"the host comes too late", 20, 15, 1, false},
	} {
		table := s.Table(tier, kernels.Codec{})
		left, timed := 0, 0 // batches after sharing was given up
		for range 200 {
			terms, ok := table.next(rows)
			if !ok {
				left++
				continue
			}
			if terms.Fraction == 0 && (terms.Blocks != 0 || terms.Own != 0) {
				t.Fatalf("alone with %d of %d blocks, want one on each multiprocessor", terms.Own, terms.Blocks)
			}
			alone, shared, gaveUp := uint64(20), uint64(25), uint32(0)
			if left > 0 {
				timed++
			}
			if left >= 30 {
				alone, shared, gaveUp = later.alone, later.shared, later.gaveUp
			}
			stamp++
			times := abi.ShareTimes{Stamp: stamp, Tier: table.terms.Tier, Misses: rows, Nanos: alone * rows, OwnNanos: alone * rows}
			if terms.Fraction != 0 {
				times.Staged, times.HostNanos, times.OwnNanos, times.Nanos, times.GaveUp = rows/2, alone*rows, alone*rows, shared*rows, gaveUp
			}
			setTimes(s.host, times)
		}
		st := table.Stats()
		if (st.Strategy == "shared") != later.begins || left < 30 || later.begins && left > 40 || timed < 20 {
			t.Errorf("%s: %d batches left to Fetch, %d others behind the first of them; %+v", later.name, left, timed, st)
		}
	}
}

// TestShareTable_LateComparison: a batch of a comparison whose time is read when sharing has been given up is no probe.
func TestShareTable_LateComparison(t *testing.T) {
	s, err := NewSharer(newDevice(), ShareOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := s.Table(kernels.HostRows{Mem: device.Buffer{}.Slice(0, unitsTier), Stride: 256, RowBytes: 256}, kernels.Codec{})
	const rows = 200_000
	stamp := uint32(0)
	ended := func(shared bool, each uint64) {
		stamp++
		times := abi.ShareTimes{Stamp: stamp, Tier: table.terms.Tier, Misses: rows, Nanos: each * rows, OwnNanos: each * rows}
		if shared {
			times.Staged, times.HostNanos = rows/2, each*rows
		}
		setTimes(s.host, times)
	}
	for !table.mu.dropped {
		terms, _ := table.next(rows)
		ended(terms.Fraction != 0, map[bool]uint64{false: 20, true: 25}[terms.Fraction != 0])
	}
	for range 5 * shareGood {
		ended(true, 10)
		table.learnLocked()
	}
	if !table.mu.dropped || table.mu.good != 0 || table.mu.probe != splitLeast {
		t.Errorf("%+v", table.Stats())
	}
}

// TestShareTable_OtherWorkOfTheDevice: batches that other kernels slow down, shared or not, go on being shared, and so do those after them.
func TestShareTable_OtherWorkOfTheDevice(t *testing.T) {
	s, err := NewSharer(newDevice(), ShareOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := s.Table(kernels.HostRows{Mem: device.Buffer{}.Slice(0, shareTier), Stride: 256, RowBytes: 256}, kernels.Codec{})
	const rows = 200_000
	for i := range 600 {
		terms, ok := table.next(rows)
		if !ok {
			t.Fatalf("batch %d: sharing was given up: %+v", i, table.Stats())
		}
		alone := uint64(20)
		if i/100%2 == 1 {
			alone = 40
		}
		times := abi.ShareTimes{Stamp: uint32(i + 1), Tier: table.terms.Tier, Misses: rows, Nanos: alone * rows, OwnNanos: alone * rows}
		if terms.Fraction != 0 {
			times.Staged, times.HostNanos, times.OwnNanos = rows/2, alone*rows/2, alone*rows/2
			times.Nanos = alone * rows * 3 / 4
		}
		setTimes(s.host, times)
	}
	if st := table.Stats(); st.Strategy != "shared" || st.Alone > 60 {
		t.Errorf("%+v", st)
	}
}

// TestShareTable_BusyProcessors: while other programs keep the processors busy, batches take hardly longer than without sharing. About 8 batches after
// that they are shared again.
func TestShareTable_BusyProcessors(t *testing.T) {
	s, err := NewSharer(newDevice(), ShareOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stamp, recovery := uint32(0), 0
	const runs = 20
	for i, idle := range manySides {
		busy := idle
		busy.host, busy.start, busy.stalls = idle.host/20, 2e6, 0.5
		for run := range uint64(runs) {
			r := rand.New(rand.NewPCG(run, uint64(i)))
			table := s.Table(kernels.HostRows{Mem: device.Buffer{}.Slice(0, unitsTier), Stride: 256, RowBytes: 256}, kernels.Codec{})
			alone := sideMisses / idle.device // nanoseconds of a batch
			batch := func(m sides) float64 {
				terms, _ := table.next(sideMisses)
				nanos := alone * math.Exp(m.noise*r.NormFloat64())
				times := abi.ShareTimes{Misses: sideMisses, OwnNanos: uint64(nanos), Nanos: uint64(nanos)}
				if terms.Fraction != 0 {
					m.timeout = float64(terms.Timeout)
					times = m.share(float64(terms.Fraction)/65536, r)
				}
				stamp++
				times.Stamp, times.Tier = stamp, table.terms.Tier
				setTimes(s.host, times)
				return float64(times.Nanos)
			}
			for range 100 {
				batch(busy)
			}
			var took float64
			for range 400 {
				took += batch(busy)
			}
			if ratio := took / 400 / alone; ratio > 1.1 {
				t.Errorf("%d, run %d: beside other programs %.3f of the time without sharing; %+v", i, run, ratio, table.Stats())
			}
			waited := 0
			for ; table.Stats().Strategy != "shared" && waited < 17; waited++ {
				batch(idle)
			}
			if recovery += waited; waited > 16 {
				t.Errorf("%d, run %d: not shared after 16 batches on idle processors; %+v", i, run, table.Stats())
			}
			if took = 0; idle.best() > shareGain*alone {
				continue
			}
			for range 200 {
				took += batch(idle)
			}
			if ratio := took / 200 / idle.best(); ratio > 1.2 {
				t.Errorf("%d, run %d: %.3f of the fastest on idle processors; %+v", i, run, ratio, table.Stats())
			}
		}
	}
	if mean := float64(recovery) / float64(runs*len(manySides)); mean > 8 {
		t.Errorf("not shared until %.1f batches after the processors were idle, the mean", mean)
	} else {
		t.Logf("shared again after %.1f batches, the mean", mean)
	}
}

// TestShareTable_OneBatchLate: one batch that takes ten times as long does not end sharing.
func TestShareTable_OneBatchLate(t *testing.T) {
	s, err := NewSharer(newDevice(), ShareOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := s.Table(kernels.HostRows{Mem: device.Buffer{}.Slice(0, shareTier), Stride: 256, RowBytes: 256}, kernels.Codec{})
	const rows = 200_000
	for i := range 60 {
		terms, _ := table.next(rows)
		times := abi.ShareTimes{Stamp: uint32(i + 1), Tier: table.terms.Tier, Misses: rows, Nanos: 20 * rows, OwnNanos: 20 * rows}
		if terms.Fraction != 0 {
			times.Staged = uint32(uint64(rows) * uint64(terms.Fraction) >> 16)
			times.Nanos, times.HostNanos, times.OwnNanos = 10*rows, 10*rows, 10*rows
			if i == 40 {
				times.Nanos = 200 * rows
			}
		} else if i > 0 {
			t.Fatalf("batch %d is fetched alone: %+v", i, table.Stats())
		}
		setTimes(s.host, times)
	}
	if st := table.Stats(); st.Strategy != "shared" || st.Shared != 59 {
		t.Errorf("%+v", st)
	}
}
