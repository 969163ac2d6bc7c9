package transfer

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
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
		l := newLedger(-1)
		first, firstCodec, err := tier.Attach(l)
		if err != nil {
			t.Fatal(err)
		}
		second, secondCodec, err := tier.Attach(newDevice())
		if err != nil {
			t.Fatal(err)
		}
		if firstCodec.Codec != tier.Codec() || secondCodec.Codec != tier.Codec() {
			t.Errorf("%v: the kernels' codec is not the tier's", mode)
		}
		metadata := device.HostBuffer(tier.Codec().(codec.OnDevice).DeviceForm().Metadata)
		if metadata.Size() == 0 {
			t.Errorf("%v: no codec metadata", mode)
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
			{"codec metadata", metadata, firstCodec.Meta.Bytes()[:metadata.Size()], secondCodec.Meta.Bytes()[:metadata.Size()]}, // what follows is padding
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
		if Detach(l, first, firstCodec); len(l.open) != 0 || l.twice != 0 {
			t.Errorf("%v: Detach leaves %v behind, gives %d back twice", mode, l.open, l.twice)
		}
	}
}

// TestAttach_OutOfMemory refuses each allocation in turn.
func TestAttach_OutOfMemory(t *testing.T) {
	for _, mode := range modes {
		tier := load(t, rowsOf(700, 48, 8), 48, Options{Codec: "ibp4", Mode: mode})
		for refuse := 0; ; refuse++ {
			l := newLedger(refuse)
			rows, c, err := tier.Attach(l)
			if err == nil {
				if refuse != 2 { // bits or index, and the codec's metadata
					t.Errorf("%v: Attach allocates %d times", mode, refuse)
				}
				Detach(l, rows, c)
			} else if !errors.Is(err, device.ErrOutOfMemory) {
				t.Errorf("%v: got %v", mode, err)
			}
			if len(l.open) != 0 || l.twice != 0 {
				t.Errorf("%v, allocation %d refused: %v left behind, %d given back twice", mode, refuse, l.open, l.twice)
			}
			if err == nil {
				break
			}
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

// batchOf makes the memory of a batch of hits, which are none of a plan's business, and the rows, which all miss.
func batchOf(t testing.TB, d device.Device, hits int, rows []int64, rowBytes int) Batch {
	t.Helper()
	alloc := func(n int64) device.Buffer {
		b, err := d.Alloc(n, "test")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	n := int64(hits + len(rows))
	b := Batch{
		Found: alloc(n * kernels.FoundBytes), Ordered: alloc(n * kernels.FoundBytes), Buckets: alloc(kernels.OrderBytes),
		Counters: alloc(kernels.CountersBytes), Out: alloc(n * int64(rowBytes)),
	}
	for i, f := 0, kernels.FoundView(b.Found); i < len(f); i++ {
		if f[i].Position = uint32(len(rows) + i); i >= hits {
			f[i] = kernels.Found{Word: uint64(rows[i-hits]), Position: uint32(i - hits)}
		}
	}
	c := kernels.CountersView(b.Counters)
	c.Hits, c.Misses = uint32(hits), uint32(len(rows))
	return b
}

// spy is a stream that knows what was launched. Fetches read from mem.
type spy struct {
	device.Stream
	mem      device.Buffer
	launched []string
}

func (s *spy) Launch(k device.Kernel) error {
	if f, ok := k.(*kernels.Fetch); ok {
		f.Tier.Mem = s.mem
	}
	s.launched = append(s.launched, k.Name())
	return s.Stream.Launch(k)
}

// TestPlan_LaunchesWhatReadingSays pins the launches of each Reading.
func TestPlan_LaunchesWhatReadingSays(t *testing.T) {
	d := newDevice()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, _, err := load(t, rowsOf(10, 8, 15), 8, Options{Codec: "none"}).Attach(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reading Reading
		want    []string
	}{
		{Reading{}, []string{"fetch"}},
		{Reading{Units: true}, []string{"fetch"}},
		{Reading{Ordered: true}, []string{"order", "fetch"}},
		{Reading{Ordered: true, Units: true}, []string{"order", "share-fetch"}},
	} {
		var p Plan
		spied := &spy{Stream: s, mem: rows.Mem}
		b := batchOf(t, d, 0, make([]int64, 5000), 8)
		b.Reading = c.reading
		if err := p.Enqueue(spied, rows, kernels.Codec{}, b, nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(spied.launched, c.want) {
			t.Errorf("%+v: launched %v, want %v", c.reading, spied.launched, c.want)
		}
	}
}

// TestPlan_ReadsMisses reads batches of two tables through one plan a goroutine, as lanes do, ordered and not.
func TestPlan_ReadsMisses(t *testing.T) {
	const rows = 40_000 // several pages of 2 MiB
	d := newDevice()
	data := [][]byte{rowsOf(rows, 132, 10), rowsOf(rows, 5, 11)}
	tiers := []*Tier{load(t, data[0], 132, Options{Codec: "ibp4", Mode: Packed}), load(t, data[1], 5, Options{Codec: "auto"})}
	var attached []kernels.HostRows
	var codecs []kernels.Codec
	for _, tier := range tiers {
		a, c, err := tier.Attach(d)
		if err != nil {
			t.Fatal(err)
		}
		attached, codecs = append(attached, a), append(codecs, c)
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
			for i, n := range []int{0, 1, 33, 2000, 5000, 7, 5000, 5000, 33, 5000, 0} {
				table := i / 2 % 2
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
				hits := []int{0, n / 3, 5000}[i%3]
				b := batchOf(t, d, hits, batch, rowBytes)
				rows := attached[table]
				b.Reading.Ordered = i%2 == 0
				if err := p.Enqueue(&spy{Stream: s, mem: attached[table].Mem}, rows, codecs[table], b, nil); err != nil {
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
				if rest := b.Out.Bytes()[n*rowBytes:]; !bytes.Equal(rest, make([]byte, len(rest))) {
					t.Errorf("table %d: the output of hits was written", table)
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
		spied := &spy{Stream: stuck{s, name}, mem: tier.host.Mem}
		b := batchOf(t, d, 0, make([]int64, 5000), 8)
		b.Reading.Ordered = true
		err := p.Enqueue(spied, tier.host, kernels.Codec{}, b, nil)
		if !errors.Is(err, errLaunch) || spied.launched[len(spied.launched)-1] != name {
			t.Errorf("%s: got %v after %v", name, err, spied.launched)
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
	rows := make([]int64, 5000)
	for i := range rows {
		rows[i] = int64(len(rows)-i) % tier.Rows()
	}
	b := batchOf(t, d, 0, rows, 64)
	var p Plan
	spied := &spy{Stream: s, mem: tier.host.Mem}
	for _, b.Reading.Ordered = range []bool{false, true} {
		if n := testing.AllocsPerRun(20, func() {
			spied.launched = spied.launched[:0]
			if err := p.Enqueue(spied, tier.host, kernels.Codec{Codec: tier.Codec()}, b, nil); err != nil {
				t.Fatal(err)
			}
		}); n > 16 {
			t.Errorf("a batch of %d rows, ordered %v, allocates %v times", len(rows), b.Reading.Ordered, n)
		}
	}
}
