package delta

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// drive stands for a drive that keeps what was synced when the machine fails, and any part of what was only written.
type drive struct {
	held  sync.RWMutex // syncs wait while it is held for writing
	mu    sync.Mutex
	files map[string]*driveFile // by name
}

type driveFile struct {
	synced  []byte
	pending []pendingWrite
}

type pendingWrite struct {
	at    int64
	bytes []byte
}

func (f *driveFile) apply(w pendingWrite) {
	if end := int(w.at) + len(w.bytes); end > len(f.synced) {
		f.synced = append(f.synced, make([]byte, end-len(f.synced))...)
	}
	copy(f.synced[w.at:], w.bytes)
}

// newDrive has logs written to a drive during a test.
func newDrive(t *testing.T) *drive {
	d := &drive{files: map[string]*driveFile{}}
	write, syncing := writeAt, syncFile
	t.Cleanup(func() { writeAt, syncFile = write, syncing })
	of := func(f *os.File) *driveFile {
		name := strings.TrimSuffix(filepath.Base(f.Name()), ".new")
		if d.files[name] == nil {
			d.files[name] = &driveFile{}
		}
		return d.files[name]
	}
	writeAt = func(f *os.File, b []byte, at int64) (int, error) {
		n, err := f.WriteAt(b, at)
		d.mu.Lock()
		defer d.mu.Unlock()
		x := of(f)
		x.pending = append(x.pending, pendingWrite{at, bytes.Clone(b[:n])})
		return n, err
	}
	syncFile = func(f *os.File) error {
		d.held.RLock()
		defer d.held.RUnlock()
		d.mu.Lock()
		defer d.mu.Unlock()
		x := of(f)
		for _, w := range x.pending {
			x.apply(w)
		}
		x.pending = nil
		return nil
	}
	return d
}

// pending returns how many writes are not synced.
func (d *drive) pending() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		n += len(f.pending)
	}
	return n
}

// fail makes a folder of what the drive may have of another one if the machine fails now: of what is not synced each sector, or not.
func (d *drive) fail(t *testing.T, r *rand.Rand, dir, to string) {
	t.Helper()
	const sector = 64
	d.mu.Lock()
	defer d.mu.Unlock()
	numbers, err := listSegments(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range numbers {
		x := d.files[segmentName(number)]
		left := driveFile{synced: bytes.Clone(x.synced)}
		lose := r.Float64()
		for _, w := range x.pending {
			for len(w.bytes) > 0 {
				n := min(len(w.bytes), sector)
				if r.Float64() >= lose {
					left.apply(pendingWrite{w.at, w.bytes[:n]})
				}
				w.at, w.bytes = w.at+int64(n), w.bytes[n:]
			}
		}
		if err := os.WriteFile(filepath.Join(to, segmentName(number)), left.synced, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLog_MachineFails: goroutines append to a durable log, which is compacted meanwhile, and the machine fails at any moment. The log opens, and has every
// batch that Append had returned for. Batches that were only written may be lost in any part and order.
func TestLog_MachineFails(t *testing.T) {
	const goroutines = 6
	r := rand.New(rand.NewPCG(3, 9))
	for round := range 12 {
		d := newDrive(t)
		dir := t.TempDir()
		l := open(t, dir, Options{Durable: true, SegmentBytes: 2000})
		var begun, done [goroutines]atomic.Int64
		var stop atomic.Bool
		var appending sync.WaitGroup
		for g := range goroutines {
			appending.Go(func() {
				for k := int64(1); !stop.Load(); k++ {
					begun[g].Store(k)
					if err := l.Append([]Row{version(int64(g), int(k)), version(int64(100+g), int(k))}); err != nil {
						t.Error(err)
						return
					}
					done[g].Store(k)
				}
			})
		}
		for n := l.Stats().AppendedRows + 50 + r.Int64N(200); l.Stats().AppendedRows < n; {
			if round%2 == 0 {
				if err := l.Compact(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		d.held.Lock() // so that batches of several goroutines are on their way, unless one begins a segment, which syncs
		for range 10_000 {
			if d.pending() > round%goroutines {
				break
			}
			runtime.Gosched()
		}
		var least [goroutines]int64
		for g := range goroutines {
			least[g] = done[g].Load()
		}
		after := t.TempDir()
		d.fail(t, r, dir, after)
		stop.Store(true)
		d.held.Unlock()
		appending.Wait()
		again := open(t, after, Options{Durable: true})
		for g := range goroutines {
			var versions []int64
			for _, row := range []int64{int64(g), int64(100 + g)} {
				got, ok, err := again.Read(row, nil)
				if err != nil {
					t.Fatal(err)
				}
				k := int64(0)
				if ok {
					k = int64(binary.LittleEndian.Uint64(got.Stored[8:]))
				}
				versions = append(versions, k)
			}
			if versions[0] != versions[1] || versions[0] < least[g] || versions[0] > begun[g].Load() {
				t.Fatalf("round %d: rows of goroutine %d have versions %v; Append had returned for %d", round, g, versions, least[g])
			}
		}
		again.Close()
		l.Close()
	}
}
