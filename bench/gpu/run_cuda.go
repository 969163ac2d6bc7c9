//go:build cuda && linux

package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/driver"
	"github.com/tensorcache/tensorcache/transfer"
)

// commit is what the binary was built from; the linker sets it.
var commit = "unknown"

// Run measures the first GPU.
func Run(o Options) (_ *Report, err error) {
	o.EnsureDefaults()
	devices, err := cuda.Open(1)
	if err != nil {
		return nil, err
	}
	d := devices[0].(*cuda.Device)
	defer func() { err = errors.Join(err, d.Close()) }()
	v := driver.Version()
	r := &runner{o: o, d: d, report: Report{
		Device: d.Info().Name, Driver: fmt.Sprintf("CUDA %d.%d", v/1000, v%1000/10), Commit: commit,
	}}
	defer r.release()
	if r.stream, err = d.NewStream(); err != nil {
		return nil, err
	}
	for range o.Runs + 1 {
		t, err := d.NewTimer()
		if err != nil {
			return nil, err
		}
		r.timers = append(r.timers, t)
	}
	if err := r.run(); err != nil {
		return nil, err
	}
	return &r.report, nil
}

const warmups = 3

type runner struct {
	o       Options
	d       *cuda.Device
	stream  device.Stream
	timers  []*cuda.Event
	buffers []device.Buffer
	report  Report
}

func (r *runner) has(name string) bool { return slices.Contains(r.o.Cases, name) }

func (r *runner) run() error {
	for _, rowBytes := range r.o.RowBytes {
		var tier *transfer.Tier
		if r.has("hit-decode") || r.has("miss-fetch") {
			var err error
			if tier, err = r.load(rowBytes, "ibp4"); err != nil {
				return err
			}
		}
		if r.has("hit-decode") {
			if err := r.hitDecode(tier); err != nil {
				return fmt.Errorf("hit-decode: %w", err)
			}
		}
		if r.has("miss-fetch") {
			if err := r.missFetch(tier); err != nil {
				return fmt.Errorf("miss-fetch: %w", err)
			}
		}
		if tier != nil {
			tier.Close()
		}
		r.free()
		if err := r.gathers(rowBytes); err != nil {
			return fmt.Errorf("gather: %w", err)
		}
		r.free()
	}
	if r.has("lookup") {
		if err := r.lookup(); err != nil {
			return fmt.Errorf("lookup: %w", err)
		}
		r.free()
	}
	if r.has("load") {
		if err := r.loads(); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	return nil
}

func (r *runner) free() {
	for _, b := range r.buffers {
		r.d.Free(b)
	}
	r.buffers = nil
}

func (r *runner) release() {
	r.free()
	for _, t := range r.timers {
		t.Close()
	}
	if r.stream != nil {
		r.stream.Close()
	}
}

func (r *runner) alloc(n int64) (device.Buffer, error) {
	b, err := r.d.Alloc(n, "benchmark")
	r.buffers = append(r.buffers, b)
	return b, err
}

func (r *runner) put(data []byte) (device.Buffer, error) {
	b, err := r.alloc(int64(len(data)))
	if err != nil {
		return b, err
	}
	return b, device.Upload(r.d, b, data)
}

// time returns the median seconds of what enqueue enqueues; i counts the runs.
func (r *runner) time(enqueue func(i int) error) (float64, error) {
	for i := range warmups {
		if err := enqueue(i); err != nil {
			return 0, err
		}
	}
	if err := r.stream.Synchronize(); err != nil {
		return 0, err
	}
	// Between runs so that each is measured alone: an event before and after.
	var times []float64
	for i := range r.o.Runs {
		if err := errors.Join(r.stream.Record(r.timers[0]), enqueue(warmups+i), r.stream.Record(r.timers[1]), r.timers[1].Synchronize()); err != nil {
			return 0, err
		}
		d, err := r.timers[1].Since(r.timers[0])
		if err != nil {
			return 0, err
		}
		times = append(times, d.Seconds())
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

func (r *runner) add(x Result) {
	if x.BaselineValue > 0 {
		x.Ratio = x.Value / x.BaselineValue
		if x.Unit == "us" {
			x.Ratio = x.BaselineValue / x.Value
		}
	}
	x.write(r.o.Log)
	r.report.Results = append(r.report.Results, x)
}

// write writes a line to the log.
func (x Result) write(w io.Writer) {
	fmt.Fprintf(w, "%-14s %9d %-6s %10d %9d %10.2f %-8s %10.2f %7.2f  %s\n",
		x.Case, x.RowBytes, x.Codec, x.TableBytes>>20, x.Batch, x.Value, x.Unit, x.BaselineValue, x.Ratio, x.Baseline)
}

// source is N(0,1) float32 rows: some megabytes of distinct ones, over and over.
func (r *runner) source(rowBytes int) transfer.Source {
	return &normals{distinct: distinctRows(rowBytes), rowBytes: rowBytes, rows: int(r.o.TableBytes / int64(rowBytes))}
}

var distinct struct {
	sync.Mutex
	data []byte
}

// distinctRows returns 64 MB of normals, a whole number of rows.
func distinctRows(rowBytes int) []byte {
	distinct.Lock()
	defer distinct.Unlock()
	if distinct.data == nil {
		distinct.data = make([]byte, 64<<20)
		var wg sync.WaitGroup
		const part = 1 << 20
		for from := 0; from < len(distinct.data); from += part {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(from), 1))
				for i := from; i < from+part; i += 4 {
					binary.LittleEndian.PutUint32(distinct.data[i:], math.Float32bits(float32(rng.NormFloat64())))
				}
			})
		}
		wg.Wait()
	}
	return distinct.data[:len(distinct.data)/rowBytes*rowBytes]
}

type normals struct {
	distinct       []byte
	rowBytes, rows int
	at, done       int
}

func (s *normals) Rows() int     { return s.rows }
func (s *normals) RowBytes() int { return s.rowBytes }
func (s *normals) Read(dst []byte) (int, error) {
	n := min(len(dst)/s.rowBytes, s.rows-s.done)
	for filled := 0; filled < n*s.rowBytes; {
		m := copy(dst[filled:n*s.rowBytes], s.distinct[s.at:])
		filled += m
		s.at = (s.at + m) % len(s.distinct)
	}
	s.done += n
	return n, nil
}

func (r *runner) load(rowBytes int, codec string) (*transfer.Tier, error) {
	return transfer.Load(r.d, r.source(rowBytes), transfer.Options{Codec: codec, Seed: 1})
}

// sets is how many batches take turns, so that no run finds its rows in a cache.
const sets = 4

func randomRows(n int, from, to int64, seed uint64) []int64 {
	rng := rand.New(rand.NewPCG(seed, 2))
	rows := make([]int64, n)
	for i := range rows {
		rows[i] = from + rng.Int64N(to-from)
	}
	return rows
}

// parallel runs body for consecutive parts of [0, n).
func parallel(n int, body func(from, to int)) {
	var wg sync.WaitGroup
	part := (n + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
	for from := 0; from < n; from += part {
		wg.Go(func() { body(from, min(from+part, n)) })
	}
	wg.Wait()
}

func asBytes[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}
