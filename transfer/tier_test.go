package transfer

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

func TestMode_ParsesItsName(t *testing.T) {
	for _, m := range modes {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("ParseMode(%v) = %v, %v", m, got, err)
		}
	}
	_, err := ParseMode("sparse")
	if want := `transfer: unknown host tier ("sparse") must be inplace or packed`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if got := Mode(7).String(); got != "mode(7)" {
		t.Errorf("Mode(7) is %s", got)
	}
}

// TestAttach_Copies: what a device holds is its own, except for the rows themselves.
func TestAttach_Copies(t *testing.T) {
	data := rowsOf(700, 48, 7)
	for _, mode := range modes {
		tier := load(t, data, 48, Options{Codec: "ibp4", Mode: mode})
		first, err := tier.Attach(newDevice())
		if err != nil {
			t.Fatal(err)
		}
		second, err := tier.Attach(newDevice())
		if err != nil {
			t.Fatal(err)
		}
		if unsafe.SliceData(first.Mem.Bytes()) != unsafe.SliceData(tier.host.Mem.Bytes()) {
			t.Errorf("%v: the rows were copied", mode)
		}
		for _, b := range []struct {
			what      string
			host      device.Buffer
			one, copy []byte
		}{
			{"bits", tier.host.Compressed, first.Compressed.Bytes(), second.Compressed.Bytes()},
			{"index", tier.host.Index, first.Index.Bytes(), second.Index.Bytes()},
		} {
			if !bytes.Equal(b.one, b.host.Bytes()) {
				t.Errorf("%v: the device's %s differ from the host's", mode, b.what)
			}
			before := bytes.Clone(b.copy)
			for i := range b.one {
				b.one[i] ^= 0xff
			}
			if !bytes.Equal(b.copy, before) || !bytes.Equal(b.host.Bytes(), before) {
				t.Errorf("%v: %s are shared", mode, b.what)
			}
		}
		checkRows(t, tier, data)
	}
}

func TestAttach_OutOfMemory(t *testing.T) {
	for _, mode := range modes {
		tier := load(t, rowsOf(700, 48, 8), 48, Options{Codec: "ibp4", Mode: mode})
		l := newLedger(0)
		if _, err := tier.Attach(l); !errors.Is(err, device.ErrOutOfMemory) || len(l.open) != 0 {
			t.Errorf("%v: got %v, %v left behind", mode, err, l.open)
		}
	}
}

// TestStored_CorruptRow: bytes in place that no encoder writes are reported with their row.
func TestStored_CorruptRow(t *testing.T) {
	tier := load(t, rowsOf(700, 48, 9), 48, Options{Codec: "ibp4"})
	for r := range tier.Rows() {
		if stored, compressed, _ := tier.Stored(r); compressed {
			clear(stored) // no chunk participates: longer than a row
			if _, _, err := tier.Stored(r); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("row %d: %v", r, err)
			}
			if _, err := tier.SlotBytes(r); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("slot of row %d: %v", r, err)
			}
			return
		}
	}
}

// batchOf makes the memory of a batch whose rows all miss.
func batchOf(t testing.TB, d device.Device, rows []int64, rowBytes int) Batch {
	t.Helper()
	alloc := func(n int64) device.Buffer {
		b, err := d.Alloc(n, "test")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	n := int64(len(rows))
	b := Batch{
		Found: alloc(n * kernels.FoundBytes), Scratch: alloc(n * kernels.FoundBytes),
		Counters: alloc(kernels.CountersBytes), Out: alloc(n * int64(rowBytes)),
	}
	for i, f := 0, kernels.FoundView(b.Found); i < len(f); i++ {
		f[i] = kernels.Found{Word: uint64(rows[i]), Position: uint32(i)}
	}
	kernels.CountersView(b.Counters).Misses = uint32(n)
	return b
}

// TestPlan_ReadsMisses reads batches of two tables through one plan a goroutine, as lanes do.
func TestPlan_ReadsMisses(t *testing.T) {
	const rows = 40_000 // several pages of 2 MiB
	d := newDevice()
	data := [][]byte{rowsOf(rows, 132, 10), rowsOf(rows, 5, 11)}
	tiers := []*Tier{load(t, data[0], 132, Options{Codec: "ibp4", Mode: Packed}), load(t, data[1], 5, Options{Codec: "auto"})}
	var attached []kernels.HostRows
	for _, tier := range tiers {
		a, err := tier.Attach(d)
		if err != nil {
			t.Fatal(err)
		}
		attached = append(attached, a)
	}
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 12))
			s, err := d.NewStream()
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			var p Plan
			for _, n := range []int{0, 1, 33, 2000, 7} {
				table := r.IntN(2)
				tier, rowBytes := tiers[table], tiers[table].RowBytes()
				batch := make([]int64, n)
				moved := uint64(0)
				for i := range batch {
					batch[i] = r.Int64N(rows)
					stored, _, err := tier.Stored(batch[i])
					if err != nil {
						t.Error(err)
					}
					moved += uint64(len(stored))
				}
				b := batchOf(t, d, batch, rowBytes)
				if err := p.Enqueue(s, attached[table], tier.Codec(), b); err != nil {
					t.Error(err)
				}
				if err := s.Synchronize(); err != nil {
					t.Error(err)
				}
				for i, row := range batch {
					if !bytes.Equal(b.Out.Bytes()[i*rowBytes:][:rowBytes], data[table][int(row)*rowBytes:][:rowBytes]) {
						t.Errorf("table %d row %d at position %d differs from its source", table, row, i)
						return
					}
				}
				if c := kernels.CountersView(b.Counters); c.HostBytes != moved || c.Corrupt != 0 {
					t.Errorf("counters are %+v, want %d host bytes", *c, moved)
				}
			}
		})
	}
	wg.Wait()
}

// stuck is a stream that refuses to launch one kernel.
type stuck struct {
	device.Stream
	refuse string
}

var errLaunch = errors.New("launch failed")

func (s stuck) Launch(k device.Kernel) error {
	if k.Name() == s.refuse {
		return errLaunch
	}
	return s.Stream.Launch(k)
}

func TestPlan_LaunchErrors(t *testing.T) {
	d := newDevice()
	tier := load(t, rowsOf(10, 8, 13), 8, Options{Codec: "none"})
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, name := range []string{"order", "fetch"} {
		var p Plan
		if err := p.Enqueue(stuck{s, name}, tier.host, nil, batchOf(t, d, []int64{1, 2}, 8)); !errors.Is(err, errLaunch) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestPlan_NoAllocationPerRow: what a batch allocates does not grow with it.
func TestPlan_NoAllocationPerRow(t *testing.T) {
	d := newDevice()
	tier := load(t, rowsOf(3000, 64, 14), 64, Options{Codec: "ibp4"})
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows := make([]int64, 2500)
	for i := range rows {
		rows[i] = int64(len(rows) - i)
	}
	b := batchOf(t, d, rows, 64)
	var p Plan
	if n := testing.AllocsPerRun(20, func() {
		if err := p.Enqueue(s, tier.host, tier.Codec(), b); err != nil {
			t.Fatal(err)
		}
	}); n > 16 {
		t.Errorf("a batch of %d rows allocates %v times", len(rows), n)
	}
}
