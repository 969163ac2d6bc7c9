package transfer

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// mapped returns memory of mmap that holds data.
func mapped(t testing.TB, data []byte) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, len(data), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	copy(mem, data)
	return mem
}

// lostWhileCopying is a device whose streams fail from one copy on, after they have overwritten half of what that copy was to write in host memory:
// as a GPU may leave it that is lost while it copies.
type lostWhileCopying struct {
	device.Device
	copies atomic.Int64 // left before the one that fails
}

func (d *lostWhileCopying) AdoptHost(mem []byte, what string) (device.Buffer, error) {
	return d.Device.(device.HostAdopter).AdoptHost(mem, what)
}

func (d *lostWhileCopying) Reaches(b device.Buffer) error {
	return d.Device.(device.HostAdopter).Reaches(b)
}

func (d *lostWhileCopying) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return lostStream{s, d}, err
}

type lostStream struct {
	device.Stream
	d *lostWhileCopying
}

var errCopy = errors.New("lost while copying")

func (s lostStream) Copy(dst, src device.Buffer) error {
	left := s.d.copies.Add(-1)
	if left < 0 {
		if mem := dst.Bytes(); left == -1 && mem != nil {
			for i := range mem[:len(mem)/2] {
				mem[i] = 0xdb
			}
		}
		return errCopy
	}
	return s.Stream.Copy(dst, src)
}

func (s lostStream) Launch(k device.Kernel) error {
	if s.d.copies.Load() < 0 {
		return errCopy
	}
	return s.Stream.Launch(k)
}

func (s lostStream) Synchronize() error {
	err := s.Stream.Synchronize()
	if s.d.copies.Load() < 0 {
		err = errors.Join(err, errCopy)
	}
	return err
}

// TestGPU_AdoptLostWhileLoading: whichever copy of a load is the last, the rows are as they were afterwards.
func TestGPU_AdoptLostWhileLoading(t *testing.T) {
	d := gputest.Open(t)
	defer func(piece, first int64) { pieceBytes, firstBytes = piece, first }(pieceBytes, firstBytes)
	pieceBytes, firstBytes = 32<<10, 8<<10
	const rowBytes = 264 // pieces end within words of row bits
	data := gputest.FloatRows(dtype.Float32, 1000, rowBytes, 1)
	mem := mapped(t, data)
	for n := int64(0); ; n += int64(gputest.Few(1, 5)) {
		f := &lostWhileCopying{Device: d}
		f.copies.Store(n)
		tier, err := Load(f, SourceOf(mem, rowBytes), Options{Codec: "rank", DType: dtype.Float32, Adopt: mem})
		if err == nil {
			f.copies.Store(1 << 40)
			if n < 30 || bytes.Equal(mem, data) {
				t.Errorf("loaded with %d copies, or nothing was compressed", n)
			}
			checkRows(t, tier, data)
			if err := tier.Restore(); err != nil || !bytes.Equal(mem, data) {
				t.Errorf("rows that were loaded are not restored: %v", err)
			}
			tier.Close()
			return
		}
		if !errors.Is(err, errCopy) {
			t.Fatal(err)
		}
		if !bytes.Equal(mem, data) {
			t.Fatalf("rows differ after copy %d has failed", n)
		}
	}
}

// TestGPU_AdoptPageLocked: memory that is page-locked already stays so when the tier is closed; memory of which a part is, is an error, and is
// not page-locked afterwards.
func TestGPU_AdoptPageLocked(t *testing.T) {
	d, others := gputest.Open(t), gputest.Open(t)
	page := os.Getpagesize()
	mem := mapped(t, make([]byte, 8*page))
	lock := func(b []byte) device.Buffer {
		t.Helper()
		locked, err := others.(device.HostAdopter).AdoptHost(b, "test")
		if err != nil {
			t.Fatal(err)
		}
		return locked
	}
	load := func(b []byte) error {
		tier, err := Load(d, SourceOf(b, 64), Options{Codec: "none", Adopt: b})
		if err == nil {
			tier.Close()
		}
		return err
	}
	first, second := lock(mem[:2*page]), lock(mem[2*page:4*page])
	for range 2 { // the first load must not unlock it
		if err := load(mem[:4*page]); err != nil {
			t.Errorf("memory locked in two parts: %v", err)
		}
		if err := load(mem[page : 2*page]); err != nil {
			t.Errorf("a part of locked memory: %v", err)
		}
	}
	want := "must be page-locked as a whole or not at all: byte 16384 is not"
	if err := load(mem); page == 4096 && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v, want %s", err, want)
	}
	others.Free(first)
	others.Free(second)
	if err := load(mem); err != nil {
		t.Errorf("after unlocking: %v", err)
	}
	others.Free(lock(mem)) // nothing of it is locked
}

// TestAdopt_LastRowsStayRaw: a row is not compressed if a decoder could read past the last page of adopted memory, neither when it is loaded
// nor when it is written.
func TestAdopt_LastRowsStayRaw(t *testing.T) {
	const rowBytes = 128 // that many bytes may be read behind a row
	rows := os.Getpagesize() / rowBytes
	data := bytes.Repeat(rowsOf(1, rowBytes, 1), rows)
	for _, behind := range []int{0, rowBytes} {
		mem := mapped(t, data)[:len(data)-behind]
		tier, err := Load(newDevice(), SourceOf(mem, rowBytes), Options{Codec: "ibp4", Adopt: mem})
		if err != nil {
			t.Fatal(err)
		}
		last := tier.Rows() - 1
		stays := behind == 0
		checkRows(t, tier, data[:len(mem)])
		checkTotals(t, tier)
		stored := make([]byte, tier.Codec().EncodeBound())
		n, err := tier.Codec().Encode(stored, data[:rowBytes])
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, compressed, _ := tier.Stored(last); compressed == stays {
				t.Errorf("%d bytes behind: last row of %d stored bytes compressed: %v", behind, n, compressed)
			}
			if _, _, err := tier.Write(last, stored[:n], true); err != nil {
				t.Fatal(err)
			}
		}
		checkRows(t, tier, data[:len(mem)])
		checkTotals(t, tier)
		tier.Close()
	}
}
