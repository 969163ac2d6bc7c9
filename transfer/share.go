package transfer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// Sharer lets the host's processors help one device with misses of small rows of large tables, where what a device pays for
// is address translation: the processors gather rows in page-locked memory, and copies, whose translation is another one,
// take them to the device.
//
// A shared batch's misses are a list in address order. The device lists where the rows of the first pieces lie, in page-locked
// memory; workers claim pieces from the front, gather them, and the first of the workers enqueues the copies on a stream of
// its own, each followed by the number of pieces that have arrived. Meanwhile the device fetches its own part from the back
// of the list, and writes to the output what has arrived. Nothing waits for the host for ever: the device takes over what no
// worker has claimed, and after a time-out the rest. The workers write nothing but staging memory, which is used again only
// when they and the copies are done with it.
//
// One batch at a time is shared; the device decides which when it comes to it. Safe for concurrent use.
type Sharer struct {
	device       device.Device
	threads      int
	terms        kernels.Share
	staging      device.Buffer // page-locked
	copies       device.Stream
	host         *kernels.ShareHost
	ready        [kernels.SharePieces]atomic.Uint32 // the number of the share whose piece is gathered
	enqueued     atomic.Uint32                      // ShareFetches
	failed       atomic.Bool                        // copies or fetches could not be enqueued: nothing is shared any more
	closing      atomic.Bool
	workers      sync.WaitGroup
	wake         chan struct{}   // the first worker's
	wakeOthers   []chan struct{} // the others'
	done         chan struct{}   // closed when the workers are to end
	hot          atomic.Bool     // the others are to look for work
	job          shareJob        // what work names
	work, inside atomic.Uint32   // the number of the share that workers may join, 0 for none; how many have joined
	stall        func(piece int) // tests: called before a piece is gathered

	mu struct {
		sync.Mutex
		tables []*ShareTable
	}
}

// shareJob is a share as the workers see it.
type shareJob struct {
	number, pieces uint32
	terms          *kernels.Share
	mem            []byte
}

// ShareOptions say how a device's misses are shared. The zero value of a field is its default.
type ShareOptions struct {
	// Threads is how many goroutines gather rows, each keeping a processor busy during a batch. Default: half of GOMAXPROCS, at
	// most 8.
	Threads int
	// StageBytes is the staging memory, as much page-locked as on the device. Default 64 MiB.
	StageBytes int64
	// Piece and Unit are the rows that a worker and the device take at a time; Unit divides Piece. Defaults 256, and 64 for rows
	// of up to 256 bytes, else 32.
	Piece, Unit int
	// Timeout is how long the device waits for an arrival. Default 1 ms.
	Timeout time.Duration
	// Always shares batches however small, tables too, and whether it pays or not: for tests.
	Always bool
}

const (
	defaultStageBytes = 64 << 20
	defaultPiece      = 256 // of 64, 128 and 256 rows the fastest on an H200, by 5 to 10 % over 128
	maxDefaultThreads = 8   // of 16 processors: 15 threads were slower than 8
	defaultTimeout    = time.Millisecond
	// Workers that had gone to sleep were seen to miss a time-out of 500 µs: after a batch they look for the next one so long, in
	// all while one is enqueued, and then sleep between looks.
	shareLinger     = 2 * time.Millisecond
	shareSpin       = 4 * time.Millisecond
	shareSleep      = 50 * time.Microsecond
	shareHostBlocks = 16 // blocks that begin with the host's part: 32 were no faster
	arrivedOffset   = int64(unsafe.Offsetof(kernels.ShareDevice{}.Arrived))
	quietOffset     = int64(unsafe.Offsetof(kernels.ShareDevice{}.Quiet))
)

// ErrNoShare is wrapped by NewSharer's error where the device cannot share.
var ErrNoShare = errors.New("transfer: misses cannot be shared")

// DefaultShareThreads is how many threads a Sharer has unless it is told: they leave processors free.
func DefaultShareThreads() int { return min(maxDefaultThreads, runtime.GOMAXPROCS(0)/2) }

// NewSharer allocates a device's staging memory and starts its workers.
func NewSharer(d device.Device, o ShareOptions) (_ *Sharer, err error) {
	if o.Threads == 0 {
		o.Threads = max(1, DefaultShareThreads())
	}
	if o.StageBytes == 0 {
		o.StageBytes = defaultStageBytes
	}
	if o.Piece == 0 {
		o.Piece = defaultPiece
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Unit != 0 && o.Piece%o.Unit != 0 || o.Threads < 0 {
		return nil, fmt.Errorf("transfer: %d threads, pieces of %d rows and units of %d: there must be threads, and units divide pieces", o.Threads, o.Piece, o.Unit)
	}
	s := &Sharer{device: d, threads: o.Threads, wake: make(chan struct{}, 1), done: make(chan struct{})}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	t := &s.terms
	*t = kernels.Share{Unit: o.Unit, Piece: o.Piece, Timeout: o.Timeout}
	if o.Always {
		t.Least = 1
	} else {
		t.Least = shareBatch
	}
	for _, b := range []struct {
		buffer *device.Buffer
		bytes  int64
		alloc  func(int64, string) (device.Buffer, error)
	}{
		{&t.Host, kernels.ShareHostBytes, d.AllocHost}, {&t.List, int64(kernels.SharePieces*o.Piece) * 8, d.AllocHost},
		{&s.staging, o.StageBytes, d.AllocHost}, {&t.Device, kernels.ShareDeviceBytes, d.Alloc}, {&t.Stage, o.StageBytes, d.Alloc},
	} {
		if *b.buffer, err = b.alloc(b.bytes, "staging of misses"); err != nil {
			return nil, err
		}
	}
	s.host = t.HostView()
	if s.copies, err = d.NewStream(); err != nil {
		return nil, err
	}
	if _, ok := s.copies.(device.ValueWriter); !ok {
		return nil, fmt.Errorf("%w: the device's streams store no words", ErrNoShare)
	}
	if err = errors.Join(s.writeValue(quietOffset, 0), s.copies.Synchronize()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoShare, err)
	}
	for range s.threads - 1 {
		wake := make(chan struct{}, 1)
		s.wakeOthers = append(s.wakeOthers, wake)
		s.workers.Go(func() { pprof.Do(context.Background(), shareLabels, func(context.Context) { s.help(wake) }) })
	}
	s.workers.Go(func() { pprof.Do(context.Background(), shareLabels, func(context.Context) { s.lead() }) })
	return s, nil
}

// shareLabels are the workers' profiler labels.
var shareLabels = pprof.Labels("tensorcache.task", "share")

// StageBytes returns the staging memory, page-locked and on the device.
func (s *Sharer) StageBytes() (host, onDevice int64) {
	return s.staging.Size() + s.terms.List.Size() + s.terms.Host.Size(), s.terms.Stage.Size() + s.terms.Device.Size()
}

// Threads returns how many goroutines gather rows.
func (s *Sharer) Threads() int { return s.threads }

// Close ends the workers and frees the memory. All batches must have finished.
func (s *Sharer) Close() {
	s.stop()
	s.free()
}

// stop ends the workers; batches go on without them.
func (s *Sharer) stop() {
	s.closing.Store(true)
	close(s.done)
	s.workers.Wait()
}

func (s *Sharer) free() {
	if s.copies != nil {
		s.copies.Synchronize()
		s.copies.Close()
	}
	for _, b := range []device.Buffer{s.terms.Host, s.terms.List, s.terms.Device, s.terms.Stage, s.staging} {
		s.device.Free(b)
	}
}

func (s *Sharer) writeValue(offset int64, value uint32) error {
	return s.copies.(device.ValueWriter).WriteValue32(s.terms.Device.Slice(offset, offset+4), value)
}

// expect makes the workers look for a share that is about to be enqueued. If that fails, forget takes it back.
func (s *Sharer) expect() {
	s.enqueued.Add(1)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Sharer) forget() { s.enqueued.Add(^uint32(0)) }

// spin waits a little, and now and then lets other goroutines run.
func spin(i *int) {
	if *i++; *i%32 == 0 {
		runtime.Gosched()
	}
}

// woken waits until a worker is to look for work; false says that it is to end.
func (s *Sharer) woken(wake chan struct{}) bool {
	select {
	case <-wake:
		return true
	case <-s.done:
		return false
	}
}

// heat makes the other workers look for work until hot is false.
func (s *Sharer) heat() {
	if s.hot.Swap(true) {
		return
	}
	for _, w := range s.wakeOthers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// lead is the first worker: it looks for shares, gathers, and enqueues the copies.
func (s *Sharer) lead() {
	last := uint32(0)
	for s.woken(s.wake) {
		s.heat()
		since := time.Now()
		for i := 0; !s.closing.Load(); spin(&i) {
			if opened := atomic.LoadUint32(&s.host.Opened); opened != last {
				last = opened
				s.serve(opened)
				since = time.Now()
				continue
			}
			if i%32 != 0 {
				continue
			}
			idle := time.Since(since)
			if idle > shareLinger && atomic.LoadUint32(&s.host.Retired) == s.enqueued.Load() {
				break
			}
			if idle > shareSpin {
				s.hot.Store(false)
				time.Sleep(shareSleep)
			}
		}
		s.hot.Store(false)
	}
}

// help is every other worker.
func (s *Sharer) help(wake chan struct{}) {
	last := uint32(0)
	for s.woken(wake) {
		for i := 0; s.hot.Load() && !s.closing.Load(); spin(&i) {
			number := s.work.Load()
			if number == 0 || number == last {
				continue
			}
			last = number
			s.inside.Add(1)
			if s.work.Load() == number { // the job is this share's until inside is 0 again
				for s.gather() {
				}
			}
			s.inside.Add(^uint32(0))
		}
	}
}

// serve does the host's part of a share.
func (s *Sharer) serve(number uint32) {
	pieces, table := atomic.LoadUint32(&s.host.Pieces), atomic.LoadUint32(&s.host.Tier)
	s.mu.Lock()
	if int(table) >= len(s.mu.tables) || s.failed.Load() {
		pieces = 0
	} else {
		t := s.mu.tables[table]
		s.job = shareJob{number, min(pieces, uint32(t.terms.MaxPieces)), &t.terms, t.tier.Mem.Bytes()}
	}
	s.mu.Unlock()
	if pieces != 0 {
		atomic.StoreUint32(&s.host.Claimed, kernels.CountWord(number, 0))
		s.heat()
		s.work.Store(number)
		sent := uint32(0)
		for more := true; more; {
			sent = s.send(sent)
			more = s.gather()
		}
		for i := 0; sent < min(kernels.Counted(atomic.LoadUint32(&s.host.Claimed), number), s.job.pieces) && !s.over(); spin(&i) {
			sent = s.send(sent)
		}
		s.work.Store(0)
		for i := 0; s.inside.Load() != 0; spin(&i) {
		}
	}
	if s.failed.Load() {
		return // the device shares nothing any more
	}
	if err := s.writeValue(quietOffset, number); err != nil {
		s.failed.Store(true)
	}
}

// over says whether nothing more of the job is wanted.
func (s *Sharer) over() bool {
	number := s.job.number
	return s.closing.Load() || s.failed.Load() || atomic.LoadUint32(&s.host.Closed) == number ||
		atomic.LoadUint32(&s.host.Opened) != number || s.device.Err() != nil
}

// gather claims a piece and gathers it; false says that there is none left.
func (s *Sharer) gather() bool {
	j, h := &s.job, s.host
	next := kernels.Counted(atomic.LoadUint32(&h.Claimed), j.number)
	if next >= j.pieces || s.over() || uint64(next+1)*uint64(j.terms.Piece) > uint64(atomic.LoadUint32(&h.Low))*uint64(j.terms.Unit) {
		return false
	}
	p := kernels.Counted(atomic.AddUint32(&h.Claimed, 1), j.number) - 1
	if p >= j.pieces {
		return false
	}
	for i := 0; atomic.LoadUint32(&h.Listed[p]) != j.number; spin(&i) {
		if s.over() {
			return false
		}
	}
	if s.stall != nil {
		s.stall(int(p))
	}
	from, to := int(p)*j.terms.Piece, int(p+1)*j.terms.Piece
	gatherRows(s.staging.Bytes()[from*j.terms.Slot:to*j.terms.Slot], j.terms.Slot, j.mem, j.terms.ListView()[from:to])
	s.ready[p].Store(j.number)
	return true
}

// send enqueues the copy of the pieces that are gathered beyond those sent, and returns how many then are.
func (s *Sharer) send(sent uint32) uint32 {
	j, end := &s.job, sent
	for end < j.pieces && s.ready[end].Load() == j.number {
		end++
	}
	if end == sent || s.failed.Load() {
		return sent
	}
	bytes := int64(j.terms.Piece * j.terms.Slot)
	from, to := int64(sent)*bytes, int64(end)*bytes
	err := s.copies.Copy(s.terms.Stage.Slice(from, to), s.staging.Slice(from, to))
	if err == nil {
		err = s.writeValue(arrivedOffset, kernels.CountWord(j.number, end))
	}
	if err != nil {
		s.failed.Store(true)
	}
	return end
}
