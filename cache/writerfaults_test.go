package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/slab"
)

// writerFaults counts what the writer of a cache asks of its devices and waits for, and has some of that fail.
type writerFaults struct {
	armed  atomic.Bool
	asked  atomic.Int64 // so far, while armed
	failed atomic.Int64 // of these
	from   atomic.Int64 // the first one that fails
	times  int64        // how many fail
	panics bool         // instead of returning an error, in calls of the test
	held   atomic.Int64 // bytes that are allocated
}

var errScripted = errors.New("scripted to fail")

// ask counts one more.
func (f *writerFaults) ask() error {
	if !f.armed.Load() {
		return nil
	}
	n, from := f.asked.Add(1)-1, f.from.Load()
	if n < from || n >= from+f.times {
		return nil
	}
	if f.panics && !bytes.Contains(debug.Stack(), []byte("writerScript")) { // a panic in the background ends the process, as it should
		f.from.Add(1)
		return nil
	}
	f.failed.Add(1)
	if f.panics {
		panic(errScripted)
	}
	return errScripted
}

func (f *writerFaults) open(n, workers int) []device.Device {
	devices := host.Open(n, workers)
	for i, d := range devices {
		devices[i] = faultyWriterDevice{d, f}
	}
	return devices
}

type faultyWriterDevice struct {
	device.Device
	f *writerFaults
}

func (d faultyWriterDevice) allocated(b device.Buffer, err error) (device.Buffer, error) {
	if err == nil {
		d.f.held.Add(b.Size())
	}
	return b, err
}

func (d faultyWriterDevice) Alloc(bytes int64, what string) (device.Buffer, error) {
	if err := d.f.ask(); err != nil {
		return device.Buffer{}, err
	}
	return d.allocated(d.Device.Alloc(bytes, what))
}

func (d faultyWriterDevice) AllocHost(bytes int64, what string) (device.Buffer, error) {
	if err := d.f.ask(); err != nil {
		return device.Buffer{}, err
	}
	return d.allocated(d.Device.AllocHost(bytes, what))
}

func (d faultyWriterDevice) Free(b device.Buffer) {
	d.f.held.Add(-b.Size())
	d.Device.Free(b)
}

func (d faultyWriterDevice) NewStream() (device.Stream, error) {
	if err := d.f.ask(); err != nil {
		return nil, err
	}
	s, err := d.Device.NewStream()
	return faultyWriterStream{s, d.f}, err
}

type faultyWriterStream struct {
	device.Stream
	f *writerFaults
}

func (s faultyWriterStream) Launch(k device.Kernel) error {
	if err := s.f.ask(); err != nil {
		return err
	}
	return s.Stream.Launch(k)
}

func (s faultyWriterStream) Copy(dst, src device.Buffer) error {
	if err := s.f.ask(); err != nil {
		return err
	}
	return s.Stream.Copy(dst, src)
}

func (s faultyWriterStream) Synchronize() error {
	if err := s.f.ask(); err != nil {
		return err
	}
	return s.Stream.Synchronize()
}

// Wait is a part of every wait for an epoch, and Mapped of every Update: the test lets in another process, which reads nothing.
func (f *writerFaults) Wait(context.Context) error { return f.ask() }

func (f *writerFaults) Mapped(context.Context) error         { return f.ask() }
func (f *writerFaults) Held() error                          { return nil }
func (f *writerFaults) TableTotals(int) (none board.Totals)  { return none }
func (f *writerFaults) DeviceTotals(int) (none board.Totals) { return none }
func (f *writerFaults) Lengthened(int, int64)                {}

// logged keeps what is logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

func writerOptions(log *slog.Logger) *cache.Options {
	return &cache.Options{
		Codec: "none", Budget: 24_000, Devices: cache.DeviceOptions{Count: 2, Backend: "host", Placement: cache.PlacementPartition}, Host: cache.HostOptions{Overlay: 4_000, Memory: 60_000},
		Admission: cache.AdmissionOptions{Policy: &randomPolicy{}}, Telemetry: cache.TelemetryOptions{Logger: log},
	}
}

// versionsOf are rows of one table. may has what each may be: one version, and those of later Updates that have failed.
type versionsOf struct {
	rowBytes int
	may      [][][]byte
}

func newVersions(data []byte, rowBytes int) *versionsOf {
	v := &versionsOf{rowBytes: rowBytes}
	for row := range slices.Chunk(data, rowBytes) {
		v.may = append(v.may, [][]byte{row})
	}
	return v
}

// writerScript makes all kinds of changes of a cache of three tables, as versions has them, and returns their errors.
func writerScript(t *testing.T, c *cache.Cache, f *writerFaults, versions []*versionsOf) (errs []error) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	call := func(do func() error) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a change hangs: %v\n%s", err, debug.Stack())
			}
			if err != nil {
				errs = append(errs, err)
			}
		}()
		return do()
	}
	seed := uint64(100)
	update := func(table int, rows ...int64) {
		v := versions[table]
		seed++
		data := noise(len(rows), v.rowBytes, seed)
		err := call(func() error { return c.Update(limited, table, rows, data) })
		for i, row := range rows {
			if err == nil {
				v.may[row] = nil
			}
			v.may[row] = append(v.may[row], data[i*v.rowBytes:][:v.rowBytes])
		}
	}
	settled := func() {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Microsecond) {
			if s := stats(t, c); s.OverlayRows == 0 && s.OverlayBytes == 0 || s.ChangeError != "" {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("rows stay in the overlay")
			}
		}
	}
	absent := func() {
		f.armed.Store(false) // batches are not what fails
		defer f.armed.Store(true)
		out := make([]byte, 40*c.RowBytes(1))
		if err := c.Gather(limited, cache.Request{Table: 1, Rows: allRows(400)[360:], Out: out}); err != nil {
			t.Error(err)
		}
	}
	rows := func(first, n int64) []int64 { return allRows(int(first + n))[first:] }
	update(0, rows(10, 30)...)
	update(1, rows(20, 10)...)
	update(2, rows(0, 20)...)
	call(func() error { return c.Invalidate(0, rows(100, 20)) })
	call(func() error { return c.Refresh(limited) })
	absent()
	settled()
	call(func() error { return c.Retarget(limited, 2, 32) })
	update(0, rows(10, 3)...)
	call(func() error { return c.SetBudget(limited, 30_000) })
	call(func() error { return c.Prefetch(1, rows(200, 40)) })
	update(2, rows(5, 5)...)
	settled()
	call(func() error { return c.Refresh(limited) })
	call(func() error { return c.SetBudget(limited, 22_000) })
	call(func() error { return c.Retarget(limited, 2, 64) })
	update(1, rows(0, 5)...)
	call(func() error { return c.SetBudget(limited, 36_000) })
	settled()
	return errs
}

// TestWriter_Faults has what the writer asks of its devices, and waits for batches, fail once, for ever, or by a panic in the caller's goroutine. Whatever
// fails, every call returns, all rows are read right, and the failure is reported. Either the cache can be changed afterwards, and nothing is left
// in the overlay or in slots that nobody uses, or every change returns the error that Stats has. Close frees everything.
func TestWriter_Faults(t *testing.T) {
	n := writerFaultsRun(t, &writerFaults{}, 1<<40)
	if n < 100 {
		t.Fatalf("the writer asks %d times: too few", n)
	}
	for _, kind := range []struct {
		name   string
		times  int64
		panics bool
		runs   int
	}{{"once", 1, false, 130}, {"panic", 1, true, 130}, {"forever", 1 << 40, false, 20}} {
		t.Run(kind.name, func(t *testing.T) {
			runs, failed := int64(gputest.Few(kind.runs, kind.runs/10)), int64(0)
			for i := range runs {
				f := &writerFaults{times: kind.times, panics: kind.panics}
				from := i * n / runs
				writerFaultsRun(t, f, from)
				if t.Failed() {
					t.Fatalf("operation %d of %d fails", from, n)
				}
				failed += f.failed.Load()
			}
			if failed == 0 {
				t.Error("nothing has failed")
			}
		})
	}
}

// writerFaultsRun runs writerScript with faults from one operation on, and returns how many there were.
func writerFaultsRun(t *testing.T, f *writerFaults, from int64) int64 {
	f.from.Store(from)
	cache.OpenHostWith(t, f.open)
	var log logged
	data := [][]byte{noise(400, 64, 1), noise(400, 128, 2), noise(60, 64, 3)}
	paged, err := cache.FromPages(packed(t, data[1], 128, "none", nil))
	if err != nil {
		t.Fatal(err)
	}
	o := writerOptions(slog.New(slog.NewTextHandler(&log, nil)))
	o.Tables = []cache.Table{
		fromBytes(t, "x", data[0], 64), paged,
		fromBytes(t, "z", data[2], 64).ResidentWith(cache.ResidentOptions{Target: 48, MaxTarget: 64, MaxOverflow: 1}),
	}
	c, err := cache.New(*o)
	if err != nil {
		t.Fatal(err)
	}
	cache.LetIn(c, f)
	versions := []*versionsOf{newVersions(data[0], 64), newVersions(data[1], 128), newVersions(data[2], 64)}
	f.armed.Store(true)
	errs := writerScript(t, c, f, versions)
	f.armed.Store(false)

	for table, v := range versions {
		out := make([]byte, len(v.may)*v.rowBytes)
		if err := c.Gather(ctx, cache.Request{Table: table, Rows: allRows(len(v.may)), Out: out}); err != nil {
			t.Error(err)
		}
		for row, may := range v.may {
			got := out[row*v.rowBytes:][:v.rowBytes]
			if !slices.ContainsFunc(may, func(b []byte) bool { return bytes.Equal(b, got) }) {
				t.Errorf("table %d: row %d is none of %d versions", table, row, len(may))
			}
		}
	}
	s := stats(t, c)
	if s.ChangeError != "" {
		if !strings.Contains(s.ChangeError, "cache: changing what is cached: ") || !strings.Contains(s.ChangeError, errScripted.Error()) {
			t.Errorf("ChangeError is %q", s.ChangeError)
		}
		row := make([]byte, 64)
		for name, err := range map[string]error{
			"Update": c.Update(ctx, 0, []int64{3}, row), "Update of a resident row": c.Update(ctx, 2, []int64{3}, row), "Invalidate": c.Invalidate(0, []int64{3}),
			"Refresh": c.Refresh(ctx), "SetBudget": c.SetBudget(ctx, 20_000), "larger SetBudget": c.SetBudget(ctx, 60_000), "Retarget": c.Retarget(ctx, 2, 16),
		} {
			if err == nil || !strings.Contains(err.Error(), s.ChangeError) {
				t.Errorf("%s after %s: %v", name, s.ChangeError, err)
			}
		}
	} else {
		// What has failed may have left rows on their way.
		if err := c.Refresh(ctx); err != nil {
			t.Error(err)
		}
		s = settle(t, c)
		used := int64(0)
		for i, bytes := range []int{64, 128} {
			used += s.Tables[i].CachedRows * int64(slab.SlotBytes(bytes))
		}
		for deadline := time.Now().Add(time.Minute); s.PayloadBytes != used; s = stats(t, c) { // slots are freed an epoch later
			if time.Now().After(deadline) {
				t.Fatalf("slots take %d B, those of the cached rows %d", s.PayloadBytes, used)
			}
			time.Sleep(time.Millisecond)
		}
		if err := c.Retarget(ctx, 2, 48); err != nil {
			t.Error(err)
		}
	}
	if f.failed.Load() > 0 && len(errs) == 0 && s.ChangeError == "" && !log.has(errScripted.Error()) {
		t.Error("nobody has been told of the failure")
	}
	if f.failed.Load() == 0 && len(errs) > 0 {
		t.Error(errs)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := f.held.Load(); n != 0 {
		t.Errorf("%d B are allocated after Close", n)
	}
	return f.asked.Load()
}

// epochs fail so many times.
type epochs struct {
	writerFaults
	left atomic.Int64
}

func (e *epochs) Wait(context.Context) error {
	if e.left.Add(-1) >= 0 {
		return errScripted
	}
	return nil
}

// TestWriter_EpochFails: what waits for an epoch that is not known to have passed is kept, and the wait is tried again.
func TestWriter_EpochFails(t *testing.T) {
	const rows, rowBytes = 400, 64
	open := func() (*cache.Cache, []byte) {
		data := noise(rows, rowBytes, 1)
		return newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Budget: 20_000, Devices: cache.DeviceOptions{Backend: "host"}}), data
	}
	t.Run("twice", func(t *testing.T) {
		c, data := open()
		e := &epochs{}
		e.left.Store(2)
		cache.LetIn(c, e)
		if err := c.Update(ctx, 0, []int64{7}, noise(1, rowBytes, 2)); err != nil {
			t.Fatal(err)
		}
		copy(data[7*rowBytes:], noise(1, rowBytes, 2))
		if s := settle(t, c); s.ChangeError != "" || e.left.Load() > 0 {
			t.Fatalf("%d failures to come, %q", e.left.Load(), s.ChangeError)
		}
		e.left.Store(2)
		cached := stats(t, c).Tables[0].CachedRows
		if err := c.SetBudget(ctx, 14_000); err != nil {
			t.Fatal(err)
		}
		if s := stats(t, c); s.Tables[0].CachedRows < cached/4 || s.ChangeError != "" || e.left.Load() > 0 {
			t.Fatalf("%d of %d rows are left, %q", s.Tables[0].CachedRows, cached, s.ChangeError)
		}
		gatherAll(t, c, data)
	})
	t.Run("forever", func(t *testing.T) {
		c, data := open()
		e := &epochs{}
		e.left.Store(1 << 40)
		cache.LetIn(c, e)
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := c.SetBudget(limited, 14_000)
		if s := stats(t, c); err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(s.ChangeError, "cache: changing what is cached: waiting for batches: scripted to fail") {
			t.Fatalf("SetBudget: %v; ChangeError is %q", err, s.ChangeError)
		}
		if err := c.Update(limited, 0, []int64{1}, data[:rowBytes]); err == nil || !strings.Contains(err.Error(), "scripted to fail") {
			t.Errorf("Update: %v", err)
		}
		gatherAll(t, c, data)
	})
}

// TestClose_EndsCycles: a cycle that waits for batches while the cache closes has not failed.
func TestClose_EndsCycles(t *testing.T) {
	var log logged
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", noise(400, 64, 1), 64)}, Codec: "none", Budget: 8_000, Devices: cache.DeviceOptions{Backend: "host"},
		Admission: cache.AdmissionOptions{Policy: &randomPolicy{}}, Refresh: cache.RefreshOptions{Interval: time.Millisecond},
		Telemetry: cache.TelemetryOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))},
	})
	waiting := &waitingEpochs{begun: make(chan struct{}, 1)}
	cache.LetIn(c, waiting)
	<-waiting.begun
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if log.has("level=WARN") || log.has("level=ERROR") || log.has("refresh failed") {
		t.Error(log.text.String())
	}
}

// waitingEpochs do not pass.
type waitingEpochs struct {
	writerFaults
	begun chan struct{}
}

func (w *waitingEpochs) Wait(ctx context.Context) error {
	select {
	case w.begun <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}
