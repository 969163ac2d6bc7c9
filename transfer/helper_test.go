package transfer

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
)

// newDevice returns a device for a test.
func newDevice() device.Device { return host.Open(1, 2)[0] }

// rowsOf returns rows whose bytes are partly the same in all rows; one in five is noise that does not shrink.
func rowsOf(rows, rowBytes int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	common := make([]byte, rowBytes)
	for i := range common {
		common[i] = byte(r.Uint32())
	}
	b := make([]byte, 0, rows*rowBytes)
	for i := range rows {
		b = append(b, common...)
		row, noise := b[len(b)-rowBytes:], i%5 == 3
		for i := range row {
			switch {
			case noise:
				row[i] = byte(r.Uint32())
			case i%4 == 0:
				row[i] ^= byte(r.Uint32()) & 0x1f
			}
		}
	}
	return b
}

// load is Load for a test.
func load(t testing.TB, data []byte, rowBytes int, o Options) *Tier {
	t.Helper()
	tier, err := Load(newDevice(), SourceOf(data, rowBytes), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tier.Close)
	return tier
}

// checkRows reads every row back and compares it with data.
func checkRows(t testing.TB, tier *Tier, data []byte) {
	t.Helper()
	rowBytes := tier.RowBytes()
	got := make([]byte, rowBytes)
	for r := range tier.Rows() {
		stored, compressed, err := tier.Stored(r)
		if err != nil {
			t.Fatal(err)
		}
		if compressed {
			n, err := tier.Codec().Decode(got, stored)
			if err != nil || n != len(stored) || n >= rowBytes {
				t.Fatalf("row %d takes %d of %d stored bytes, %v", r, n, len(stored), err)
			}
		} else {
			copy(got, stored)
			if len(stored) != rowBytes {
				t.Fatalf("row %d has %d bytes, want %d", r, len(stored), rowBytes)
			}
		}
		if want := data[int(r)*rowBytes:][:rowBytes]; !bytes.Equal(got, want) {
			t.Fatalf("row %d reads back as %x, want %x", r, got, want)
		}
	}
}

// fake is a source that gives its rows out as it is told.
type fake struct {
	Source
	rowBytes int
	most     int   // rows of one Read
	left     int   // rows before the end
	end      error // what the last Read returns
	withRows bool  // end comes together with the last rows
	partial  bool  // set when a Read was asked for something else than whole rows
}

var errSource = errors.New("disk on fire")

func newFake(data []byte, rowBytes, most, left int, end error) *fake {
	return &fake{Source: SourceOf(data, rowBytes), rowBytes: rowBytes, most: most, left: left, end: end}
}

func (f *fake) Read(dst []byte) (int, error) {
	f.partial = f.partial || len(dst) == 0 || len(dst)%f.rowBytes != 0
	n := min(len(dst)/f.rowBytes, f.most, f.left)
	if n == 0 {
		return 0, f.end
	}
	n, err := f.Source.Read(dst[:n*f.rowBytes])
	if errors.Is(err, io.EOF) || err == nil && n == 0 {
		panic("source read beyond its end")
	}
	if f.left -= n; f.left == 0 && f.withRows {
		return n, f.end
	}
	return n, err
}

// ledger is a device that knows what was not given back, and refuses an allocation.
type ledger struct {
	device.Device
	refuse int // allocations before the one that is refused; negative: none is
	open   map[*byte]string
	twice  int // buffers given back that were not open
}

func newLedger(refuse int) *ledger {
	return &ledger{Device: newDevice(), refuse: refuse, open: map[*byte]string{}}
}

func (l *ledger) Alloc(n int64, what string) (device.Buffer, error) {
	if l.refuse--; l.refuse == -1 {
		return device.Buffer{}, device.ErrOutOfMemory
	}
	b, err := l.Device.Alloc(n, what)
	if err == nil {
		l.open[unsafe.SliceData(b.Bytes())] = what
	}
	return b, err
}

func (l *ledger) AllocHost(n int64, what string) (device.Buffer, error) { return l.Alloc(n, what) }

func (l *ledger) Free(b device.Buffer) {
	if b.Size() == 0 && b.Bytes() == nil {
		return
	}
	p := unsafe.SliceData(b.Bytes())
	if _, ok := l.open[p]; !ok {
		l.twice++
	}
	delete(l.open, p)
}
