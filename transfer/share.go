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
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// Sharer lets the host's processors help one GPU with the misses of small rows of large tables. A GPU's reads of such rows are
// limited by its address translation. So worker goroutines gather a part of the rows in page-locked memory, and copies take them
// to the GPU. Copies do not use that address translation.
//
// The misses of a shared batch are a list in address order. The GPU writes to page-locked memory where the rows of the first pieces
// lie. Workers claim pieces from the front of the list and gather them. The first worker enqueues the copies on a stream of its own,
// each followed by a store of the number of pieces that have arrived. Meanwhile the GPU fetches its own part from the back of the
// list, and writes the rows that have arrived to the output. The GPU never waits for the host without limit: it takes over the pieces
// that no worker has claimed, and after a time-out all others. Workers write to staging memory only. It is used again when they and
// the copies have finished.
//
// One batch at a time is shared, in the order in which the GPU comes to them; one that waits for more than 20 ms is read by the GPU alone. Safe for
// concurrent use.
type Sharer struct {
	device     device.Device
	threads    int
	terms      kernels.Share
	pieces     bool          // each table's Piece depends on its rows; terms has the longest
	staging    device.Buffer // page-locked
	copies     device.Stream
	host       *abi.ShareHost
	enqueued   atomic.Uint32 // ShareFetches
	failed     atomic.Bool   // copies or launches could not be enqueued, so no later batch is shared
	closing    atomic.Bool
	kept       atomic.Int32 // workers that are pinned to ShareOptions.CPUs
	workers    sync.WaitGroup
	wake       chan struct{}   // wakes the first worker
	wakeOthers []chan struct{} // wake the others
	done       chan struct{}   // closed to end the workers
	work       shareWork
	stall      func(piece int, first bool) // for tests; called before a piece is gathered; first says that the first worker calls it

	mu struct {
		sync.Mutex
		tables  []*ShareTable // by ShareTable.terms.Tier; nil where one was released
		serving *ShareTable   // the table whose rows workers may be reading
		left    *sync.Cond    // signals that serving has become nil
	}
}

// ShareOptions say how a device's misses are shared. The zero value of a field selects its default.
type ShareOptions struct {
	// Threads is the number of goroutines that gather rows, 1 to 1024. Each keeps a processor busy during a batch. If
	// there are more than 8, only as many of them work as leave 4 processors free, but at least 8. Default: half of
	// GOMAXPROCS, at most 8.
	Threads int
	// StageBytes is the size of the staging memory, in page-locked memory and again on the device. Misses for which it has no room are
	// fetched by the device. Default 128 MiB, room for 262,144 rows of 512 bytes.
	StageBytes int64
	// Piece is the number of rows that a worker takes at a time, default 256, or fewer for rows of more than 768 bytes. Unit is the number
	// that the device takes at a time. It divides Piece, and defaults to 64 for rows of up to 256 bytes, else to 32, from 2 KiB on to 16.
	Piece, Unit int
	// Timeout is how long the device waits for the next piece to arrive. Default 1 ms.
	Timeout time.Duration
	// Nodes are the memory nodes of the host for the page-locked memory. If there are none, the backend chooses.
	Nodes []int
	// CPUs are the processors to which all workers except the first are pinned, if at least Threads of them may be
	// used. If there are none, workers are not pinned.
	CPUs []int
	// Always shares every batch of every table, even if that is slower. For tests.
	Always bool

	stall func(piece int, first bool) // for tests; workers run in Go, and call it before they gather a piece
}

// validate checks options whose defaults are set. Only Unit may still be 0.
func (o *ShareOptions) validate() error {
	unit := o.Unit
	if unit == 0 {
		unit = shareUnit(0)
	}
	switch {
	case o.Threads < 1 || o.Threads > maxShareThreads:
		return fmt.Errorf("transfer: Threads (%d) must be 1 to %d", o.Threads, maxShareThreads)
	case o.Piece < 1 || unit < 1 || o.Piece%unit != 0:
		return fmt.Errorf("transfer: Piece (%d rows) must be a multiple of Unit (%d rows)", o.Piece, unit)
	case o.StageBytes < 1:
		return fmt.Errorf("transfer: StageBytes (%d B) must be positive", o.StageBytes)
	case o.Timeout < 0:
		return fmt.Errorf("transfer: Timeout (%v) must not be negative", o.Timeout)
	}
	return nil
}

// shareUnit returns the default of Unit. The default for short rows is a multiple of the others.
func shareUnit(rowBytes int) int {
	switch {
	case rowBytes <= 256:
		return 64
	case rowBytes < 2048:
		return 32
	}
	return 16
}

// sharePiece returns the default of Piece, a multiple of 64. For long rows a piece has about 128 KiB, so that it
// takes a worker no longer.
func sharePiece(rowBytes int) int {
	if rowBytes <= abi.ShareRow {
		return defaultPiece
	}
	return max(64, (128<<10)/rowBytes&^63)
}

const (
	defaultStageBytes = 128 << 20
	defaultPiece      = 256  // the fastest of 64, 128 and 256 rows on an H200, by 5 to 10 % over 128
	maxShareThreads   = 1024 // each thread may claim a piece too many, and ShareHost.Claimed counts to 4095
	maxDefaultThreads = 8    // with 16 processors, 15 threads were slower than 8
	spareProcessors   = 4    // see activeThreads
	defaultTimeout    = time.Millisecond
	arrivedOffset     = int64(unsafe.Offsetof(abi.ShareDevice{}.Arrived))
	quietOffset       = int64(unsafe.Offsetof(abi.ShareDevice{}.Quiet))
)

// ErrNoShare is wrapped by NewSharer's error if the device cannot share.
var ErrNoShare = errors.New("transfer: misses cannot be shared")

// defaultShareThreads returns the default of Threads. It leaves processors free.
func defaultShareThreads() int { return min(maxDefaultThreads, runtime.GOMAXPROCS(0)/2) }

// activeThreads returns how many of the threads gather rows. processors is the number of processors, and near the
// number of those near the device. Workers are pinned to the near ones if there are at least as many as threads. If
// workers kept all processors busy, the system would suspend the first worker or the caller for milliseconds. With 15
// threads on 16 processors, nothing arrived for longer than the time-out in 56 of 7,120 batches. With 4 to 12
// threads, that happened in none of 4,740. 12 threads were as fast as 15.
func activeThreads(threads, processors, near int) int {
	if near >= threads {
		processors = min(processors, near)
	}
	return min(threads, max(maxDefaultThreads, processors-spareProcessors))
}

// NewSharer allocates a device's staging memory and starts its workers. Only GPUs can share misses
// (kernels.ShareOpen).
func NewSharer(d device.Device, o ShareOptions) (_ *Sharer, err error) {
	if o.Threads == 0 {
		o.Threads = max(1, defaultShareThreads())
	}
	if o.StageBytes == 0 {
		o.StageBytes = defaultStageBytes
	}
	pieces := o.Piece == 0
	if pieces {
		o.Piece = defaultPiece
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Sharer{device: d, threads: activeThreads(o.Threads, runtime.GOMAXPROCS(0), len(o.CPUs)), stall: o.stall, wake: make(chan struct{}, 1), done: make(chan struct{})}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	s.mu.left = sync.NewCond(&s.mu)
	t := &s.terms
	*t = kernels.Share{Unit: o.Unit, Piece: o.Piece, Timeout: o.Timeout}
	s.pieces = pieces
	if o.Always {
		t.Least = 1
	} else {
		t.Least = shareBatch
	}
	allocHost := func(bytes int64, what string) (device.Buffer, error) {
		b, _, err := device.AllocHostOn(d, o.Nodes, bytes, what)
		return b, err
	}
	for _, b := range []struct {
		buffer *device.Buffer
		bytes  int64
		alloc  func(int64, string) (device.Buffer, error)
	}{
		{&t.Host, abi.ShareHostBytes, allocHost}, {&t.List, int64(abi.SharePieces*o.Piece) * 8, allocHost},
		{&s.staging, o.StageBytes + shareSpares*int64(o.Piece)*kernels.MaxShareRow, allocHost},
		{&t.Device, abi.ShareDeviceBytes, d.Alloc}, {&t.Stage, o.StageBytes, d.Alloc},
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
		s.workers.Go(func() {
			pprof.Do(context.Background(), shareLabels, func(context.Context) { s.keep(o.CPUs, o.Threads); s.help(wake) })
		})
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

// Close ends the workers and frees the memory. All batches must have finished.
func (s *Sharer) Close() {
	s.stop()
	s.free()
}

// stop ends the workers. Batches continue without them.
func (s *Sharer) stop() {
	s.closing.Store(true)
	atomic.StoreUint32(&s.work.stopped, 1)
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

// expect wakes the workers. They then look for a share that is about to be enqueued.
func (s *Sharer) expect() {
	s.enqueued.Add(1)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
