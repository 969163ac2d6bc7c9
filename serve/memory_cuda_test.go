//go:build cuda && linux

package serve_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// wideBytes is the length of the rows of role ownrows.
const wideBytes = 512

// taken is what a client has found that attaching and gathering cost, in bytes.
type taken struct {
	// Of the GPU's memory, beside the context.
	Attached, Gathered int64
	// Of host memory: pages that only this process has, and pages that are locked or pinned for it, as far as the system counts them.
	Private, Locked int64
	Scratch         int64 // as Stats has it
	FirstSeconds    float64
	Rate            float64 // rows a second
}

// ownMemory returns the bytes of pages that only this process has, and of those that are locked or pinned.
func ownMemory() (private, locked int64, err error) {
	sum := func(path string, keys ...string) (kib int64, err error) {
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			for _, key := range keys {
				if of, ok := strings.CutPrefix(line, key+":"); ok {
					n := int64(0)
					fmt.Sscan(of, &n)
					kib += n
				}
			}
		}
		return kib << 10, err
	}
	if private, err = sum("/proc/self/smaps_rollup", "Private_Clean", "Private_Dirty"); err != nil {
		return 0, 0, err
	}
	locked, err = sum("/proc/self/status", "VmLck", "VmPin")
	return private, locked, err
}

func init() {
	// ownrows ADDRESS ROWS: owns a table of rows of 512 bytes on a GPU, an eighth of which is cached, until the test ends.
	roles["ownrows"] = func(p *parent, args []string) error {
		rows, _ := strconv.ParseInt(args[1], 10, 64)
		table, err := cache.FromReader("rows", dtype.Int64, rows, wideBytes, func(row int64, dst []byte) error {
			for ; len(dst) > 0; row, dst = row+1, dst[wideBytes:] {
				binary.LittleEndian.PutUint64(dst, uint64(row))
			}
			return nil
		}, nil)
		if err != nil {
			return err
		}
		return p.own(args[0], cache.Options{
			Tables: []cache.Table{table}, Budget: rows * wideBytes / 8, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendCUDA}, Shared: true,
		})
	}
	// take ADDRESS ROWS BATCH THREADS STREAMS BATCHES: attaches, gathers batches of random rows of ownrows on so many streams at a time, says what that took,
	// and for each line of the test with a number of seconds the rate at which it gathers.
	roles["take"] = func(p *parent, args []string) error {
		var rows, batch, threads, streams, batches int
		for i, to := range []*int{&rows, &batch, &threads, &streams, &batches} {
			*to, _ = strconv.Atoi(args[1+i])
		}
		all, err := openDevice()
		if err != nil {
			return err
		}
		d := all.(*cuda.Device)
		var of []*reader
		for i := range streams {
			r, err := newReader(d, rows, batch, uint64(i))
			if err != nil {
				return err
			}
			of = append(of, r)
		}
		free := func() int64 { n, _ := d.FreeMemory(); return n }
		before := free()
		private, locked, err := ownMemory()
		if err != nil {
			return err
		}
		begun := time.Now()
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{Threads: threads})
		if err != nil {
			return err
		}
		t := taken{Attached: before - free()}
		if err := of[0].enqueue(c); err != nil {
			return err
		}
		if err := of[0].wait(); err != nil {
			return err
		}
		t.FirstSeconds = time.Since(begun).Seconds()
		for range batches {
			for _, r := range of {
				if err := errors.Join(r.draw(), r.enqueue(c)); err != nil {
					return err
				}
			}
			for _, r := range of {
				if err := errors.Join(r.wait(), r.check()); err != nil {
					return err
				}
			}
		}
		t.Gathered = before - free()
		privateNow, lockedNow, err := ownMemory()
		if err != nil {
			return err
		}
		t.Private, t.Locked = privateNow-private, lockedNow-locked
		s, err := c.Stats()
		if err != nil {
			return err
		}
		t.Scratch = s.ScratchBytes
		for p.tell(t); ; p.tell(t) {
			line, ok := p.wait()
			if !ok {
				return c.Close()
			}
			seconds, _ := strconv.ParseFloat(line, 64)
			begun, n := time.Now(), 0
			for ; n == 0 || time.Since(begun).Seconds() < seconds; n++ {
				for _, r := range of {
					if err := r.enqueue(c); err != nil {
						return err
					}
				}
				if n%4 == 3 { // what is enqueued keeps the GPU busy meanwhile
					if err := of[0].last.Wait(); err != nil {
						return err
					}
				}
			}
			for _, r := range of {
				if err := r.wait(); err != nil {
					return err
				}
			}
			t.Rate = float64(n*batch*streams) / time.Since(begun).Seconds()
		}
	}
}

// reader gathers batches of random rows of ownrows on a stream of its own.
type reader struct {
	device   *cuda.Device
	stream   *cuda.Stream
	ids, out device.Buffer
	numbers  []byte // of the batch
	random   *rand.Rand
	rows     int
	last     *cache.Batch
}

func newReader(d *cuda.Device, rows, batch int, seed uint64) (*reader, error) {
	s, err := d.NewStream()
	if err != nil {
		return nil, err
	}
	r := &reader{device: d, stream: s.(*cuda.Stream), random: rand.New(rand.NewPCG(seed, uint64(os.Getpid()))), rows: rows, numbers: make([]byte, batch*8)}
	if r.ids, err = d.Alloc(int64(batch)*8, "row numbers"); err != nil {
		return nil, err
	}
	if r.out, err = d.Alloc(int64(batch)*wideBytes, "output"); err != nil {
		return nil, err
	}
	return r, r.draw()
}

// draw draws the row numbers of batches from now on.
func (r *reader) draw() error {
	for at := 0; at < len(r.numbers); at += 8 {
		binary.LittleEndian.PutUint64(r.numbers[at:], uint64(r.random.IntN(r.rows)))
	}
	return device.Upload(r.device, r.ids, r.numbers)
}

func (r *reader) enqueue(c *cache.Cache) (err error) {
	r.last, err = c.On(0).Enqueue(context.Background(), r.stream.Handle(), cache.Request{DeviceRows: r.ids, DeviceOut: r.out})
	return err
}

func (r *reader) wait() error { return errors.Join(r.last.Wait(), r.stream.Synchronize()) }

// check checks rows of the batch.
func (r *reader) check() error {
	n := min(500, len(r.numbers)/8)
	got := make([]byte, n*wideBytes)
	if err := device.Download(r.device, got, r.out.Slice(0, int64(len(got)))); err != nil {
		return err
	}
	for i := range n {
		if got, want := binary.LittleEndian.Uint64(got[wideBytes*i:]), binary.LittleEndian.Uint64(r.numbers[8*i:]); got != want {
			return fmt.Errorf("row %d reads as %d", want, got)
		}
	}
	return nil
}

// takes returns what a client says that it has taken.
func (c *child) takes() (t taken) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.line()), &t); err != nil {
		c.t.Fatal(err)
	}
	return t
}

// ownRows starts an owner of so many rows.
func ownRows(t *testing.T, rows int) (address string) {
	t.Helper()
	address = "unix:" + filepath.Join(t.TempDir(), "s")
	start(t, "ownrows", address, strconv.Itoa(rows)).expect("ready")
	return address
}

// TestGPU_ClientMemory measures what a client takes of the GPU's memory beside its context, and of the host's, with batches of 200,000 rows of a table whose
// misses are shared with the host (in -short, of a small one): without threads for misses and with them, with one batch at a time and with four on streams of
// their own. Nothing else may run on the GPU.
func TestGPU_ClientMemory(t *testing.T) {
	gputest.Require(t)
	const mostDevice, mostHost = 64 << 20, 64 << 20
	rows, n := gputest.Few(9_000_000, 20_000), gputest.Few(200_000, 5000)
	address := ownRows(t, rows)
	for _, threads := range []int{-1, 0} {
		for _, streams := range []int{1, 4} {
			client := start(t, "take", address, strconv.Itoa(rows), strconv.Itoa(n), strconv.Itoa(threads), strconv.Itoa(streams), strconv.Itoa(gputest.Few(100, 2)))
			took := client.takes()
			const mib = 1 << 20
			t.Logf("threads %d, %d streams: of the GPU's memory %.1f MiB attached, %.1f MiB with batches, of which %.1f MiB is scratch; of the host's %.1f MiB private, %.1f MiB locked",
				threads, streams, float64(took.Attached)/mib, float64(took.Gathered)/mib, float64(took.Scratch)/mib, float64(took.Private)/mib, float64(took.Locked)/mib)
			if took.Gathered > mostDevice {
				t.Errorf("threads %d, %d streams: a client takes %d bytes of the GPU's memory, want at most %d", threads, streams, took.Gathered, mostDevice)
			}
			if !testing.Short() && took.Private > mostHost { // what is the GPU's on an emulated one is the host's
				t.Errorf("threads %d, %d streams: a client takes %d bytes of host memory, want at most %d", threads, streams, took.Private, mostHost)
			}
			client.kill()
		}
	}
}

// TestGPU_FirstBatch measures how long a new process takes to attach to a table of 17 GB (in -short, a small one) and to gather its first batch. The driver has
// compiled the kernels before.
func TestGPU_FirstBatch(t *testing.T) {
	gputest.Require(t)
	rows, n := gputest.Few(33_000_000, 20_000), gputest.Few(200_000, 5000)
	address := ownRows(t, rows)
	for i := range gputest.Few(4, 2) {
		client := start(t, "take", address, strconv.Itoa(rows), strconv.Itoa(n), "0", "1", "1")
		took := client.takes()
		t.Logf("client %d: first batch after %.2f s (the aim is 3)", i, took.FirstSeconds)
		if i > 0 && !testing.Short() && took.FirstSeconds > 3 {
			t.Errorf("client %d: the first batch took %.2f s, want at most 3", i, took.FirstSeconds)
		}
		client.kill()
	}
}

// TestGPU_AttachOften is TestAttach_Often on a GPU, whose free memory is watched, too.
func TestGPU_AttachOften(t *testing.T) {
	d := gputest.Open(t).(*cuda.Device)
	free := func() int64 {
		n, err := d.FreeMemory()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var before int64
	times := gputest.Few(1000, 20)
	attachOften(t, times/5, times, onGPU, func() { before = free() })
	until(t, "the GPU's memory is free again", func() bool { return free() >= before-4<<20 })
	t.Logf("%d bytes of the GPU's memory are free, %d before %d clients", free(), before, times)
}
