package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/race"
)

// accelerator is a host device that passes for one that searches masks and encodes: what a GPU's kernels do, their host
// executions do here.
type accelerator struct {
	*ledger
	refuse  string // what Alloc refuses memory for
	refused int
}

func newAccelerator() *accelerator { return &accelerator{ledger: newLedger(-1)} }

func (a *accelerator) Info() device.Info { return device.Info{Kind: "test"} }

func (a *accelerator) Alloc(n int64, what string) (device.Buffer, error) {
	if what == a.refuse {
		a.refused++
		return device.Buffer{}, fmt.Errorf("no room for %s: %w", what, device.ErrOutOfMemory)
	}
	return a.ledger.Alloc(n, what)
}

// setPieces makes pieces of so many bytes for a test.
func setPieces(t *testing.T, piece, first int64, stages int) {
	p, f, s := pieceBytes, firstBytes, pieceStages
	t.Cleanup(func() { pieceBytes, firstBytes, pieceStages = p, f, s })
	pieceBytes, firstBytes, pieceStages = piece, first, stages
}

// checkSame holds a tier against another, byte for byte.
func checkSame(t *testing.T, want, got *Tier) {
	t.Helper()
	if (want.Codec() == nil) != (got.Codec() == nil) {
		t.Fatalf("codec %v, want %v", got.Codec(), want.Codec())
	}
	if want.Codec() != nil {
		a, errA := want.Codec().MarshalBinary()
		b, errB := got.Codec().MarshalBinary()
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Fatalf("codecs differ (%v, %v)", errA, errB)
		}
	}
	for _, b := range []struct {
		what string
		a, b device.Buffer
	}{
		{"rows", want.host.Mem, got.host.Mem},
		{"bits", want.host.Compressed, got.host.Compressed},
		{"index", want.host.Index, got.host.Index},
	} {
		if !bytes.Equal(b.a.Bytes(), b.b.Bytes()) {
			t.Fatalf("%s differ", b.what)
		}
	}
	if want.Totals() != got.Totals() || want.host.Ahead != got.host.Ahead {
		t.Fatalf("totals %+v, %d ahead, want %+v, %d", got.Totals(), got.host.Ahead, want.Totals(), want.host.Ahead)
	}
}

// TestLoad_DeviceEqualsHost: however the table is cut into pieces, the device's tier is the host's.
func TestLoad_DeviceEqualsHost(t *testing.T) {
	race.SkipSequential(t)
	for _, rowBytes := range race.Some([]int{1, 3, 4, 7, 8, 29, 64, 129, 1000, 8192, 20_001}) {
		for _, rows := range []int{1, 65, 700} {
			if rows*rowBytes > 1<<20 {
				continue
			}
			data := rowsOf(rows, rowBytes, uint64(rowBytes))
			for _, mode := range modes {
				for _, name := range []string{"none", "auto"} {
					o := Options{Codec: name, Mode: mode, Seed: 2}
					want := load(t, data, rowBytes, o)
					for _, p := range []struct {
						piece, first int64
						stages       int
					}{{1, 1, 1}, {int64(7 * rowBytes), 1, 2}, {100_000, 3000, 3}} {
						t.Run(fmt.Sprintf("row=%d/rows=%d/%v/%s/piece=%d", rowBytes, rows, mode, name, p.piece), func(t *testing.T) {
							setPieces(t, p.piece, p.first, p.stages)
							d := newAccelerator()
							got, err := Load(d, SourceOf(data, rowBytes), o)
							if err != nil {
								t.Fatal(err)
							}
							checkSame(t, want, got)
							checkTotals(t, got)
							checkMemory(t, got)
							got.Close()
							if len(d.open) != 0 || d.twice != 0 {
								t.Errorf("%v left behind, %d given back twice", d.open, d.twice)
							}
						})
					}
				}
			}
		}
	}
}

// TestLoad_DeviceOutOfMemory: what the device has no memory for, the host does, to the same bytes.
func TestLoad_DeviceOutOfMemory(t *testing.T) {
	data := rowsOf(500, 68, 6)
	for _, mode := range modes {
		o := Options{Codec: "auto", Mode: mode}
		want := load(t, data, 68, o)
		d := newAccelerator()
		d.refuse = "loading"
		got, err := Load(d, SourceOf(data, 68), o)
		if err != nil {
			t.Fatal(err)
		}
		if d.refused == 0 {
			t.Fatal("the device was asked for no memory")
		}
		checkSame(t, want, got)
		got.Close()
		if len(d.open) != 0 || d.twice != 0 {
			t.Errorf("%v left behind, %d given back twice", d.open, d.twice)
		}
	}
}

// stopping is a device whose kernels of one name fail.
type stopping struct {
	*accelerator
	kernel string
	after  int // launches that work before
}

func (d *stopping) NewStream() (device.Stream, error) {
	s, err := d.accelerator.NewStream()
	return &stoppingStream{s, d}, err
}

type stoppingStream struct {
	device.Stream
	d *stopping
}

func (s *stoppingStream) Launch(k device.Kernel) error {
	if k.Name() == s.d.kernel {
		if s.d.after--; s.d.after < 0 {
			return errLaunch
		}
	}
	return s.Stream.Launch(k)
}

// TestLoad_DeviceFails: any launch's error is Load's, and no memory stays behind.
func TestLoad_DeviceFails(t *testing.T) {
	setPieces(t, 1000, 1000, 3)
	data := rowsOf(500, 68, 6)
	for _, name := range []string{"planes", "ones", "grow", "sample-bytes", "encode"} {
		for after := range 2 {
			if after > 0 && (name == "planes" || name == "ones") {
				continue // once a load
			}
			d := &stopping{newAccelerator(), name, after}
			tier, err := Load(d, SourceOf(data, 68), Options{Codec: "ibp"})
			if tier != nil || !errors.Is(err, errLaunch) {
				t.Errorf("%s fails after %d: got a tier (%t), %v", name, after, tier != nil, err)
			}
			if len(d.open) != 0 || d.twice != 0 {
				t.Errorf("%s fails after %d: %v left behind, %d given back twice", name, after, d.open, d.twice)
			}
		}
	}
}
