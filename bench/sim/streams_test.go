package sim

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/trace"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// unitSlot is the slot bytes of every row of a trace that has no rows.
const unitSlot = 512

// Generated is the workload of `cachebench run --vertices N`, its table's rows stored as they are there, and a budget of 5 %.
// After the warm-up come phases of so many batches; in each, other rows are hot.
func Generated(vertices, warmup, phase, phases int) (*Stream, error) {
	const columns, seed = 128, 1
	g, err := workload.PowerLaw(workload.GraphOptions{Vertices: vertices, Seed: seed})
	if err != nil {
		return nil, err
	}
	table, err := dataset.Generate(vertices, columns, seed)
	if err != nil {
		return nil, err
	}
	s := &Stream{Name: "default", Warmup: warmup, Graph: g}
	if phases > 1 {
		s.Name, s.Phase = "drift", phase
	}
	if err := s.store(table, 0.05); err != nil {
		return nil, err
	}
	return s, s.sample(seed, warmup+phase*phases)
}

// File is the workload of `cachebench run --features path --graph path`, 50 batches of warm-up and 200 measured ones, with
// room for a share of the raw bytes.
func File(path string, share float64) (*Stream, error) {
	g, err := workload.LoadGraph(path, false)
	if err != nil {
		return nil, err
	}
	table, err := dataset.Load(path)
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	s := &Stream{Name: name, Warmup: 50, Graph: g}
	if err := s.store(table, share); err != nil {
		return nil, err
	}
	return s, s.sample(1, 250)
}

// sample makes the batches.
func (s *Stream) sample(seed uint64, batches int) error {
	w, err := workload.NewNeighborSampling(workload.SamplingOptions{Graph: s.Graph, Batches: batches, Seed: seed})
	if err != nil {
		return err
	}
	s.Batches = w
	if s.Phase > 0 {
		s.Batches = &drifting{Workload: w, rows: int64(len(s.Slot)), first: s.Warmup, phase: s.Phase}
	}
	return nil
}

// store measures what each row of the table takes.
func (s *Stream) store(t *dataset.Table, share float64) error {
	c, err := registry.Train(registry.Auto, codec.Sample(t.Data, int64(t.Rows), t.RowBytes, int64(t.RowBytes), 1), t.RowBytes, t.DType)
	if err != nil {
		return err
	}
	s.Slot, s.Stored = make([]uint32, t.Rows), make([]uint32, t.Rows)
	var dst []byte
	if c != nil {
		dst = make([]byte, c.EncodeBound())
	}
	for r := range t.Rows {
		n := t.RowBytes
		if c != nil {
			if m, err := c.Encode(dst, t.Row(int64(r))); err == nil {
				n = m
			} else if err != codec.ErrIncompressible {
				return err
			}
		}
		s.Stored[r], s.Slot[r] = uint32(n), uint32(slab.SlotBytes(n))
	}
	slots := 0.0
	for _, n := range s.Slot {
		slots += float64(n)
	}
	mean := slots / float64(t.Rows)
	// The budget is for the hashmap, too.
	s.Capacity = int64(share * float64(len(t.Data)) * mean / (mean + hashmap.EntryBytes))
	s.MapBytes = hashmap.EntryBytes
	return nil
}

// Mooncake is a trace of KV-cache blocks of conversations (Qin et al., FAST '25), as rows of one size in batches of
// 256, with room for a share of its distinct blocks.
func Mooncake(path string, share float64) (*Stream, error) {
	r, err := trace.Open(path, trace.Options{Format: "mooncake"})
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	defer r.Close()
	var ids []int64
	rows := int64(0)
	buf := make([]trace.Request, 4096)
	for {
		n, err := r.Read(buf)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("sim: %w", err)
		}
		for _, x := range buf[:n] {
			if x.ID > 1<<31 { // rows have a counter each
				return nil, fmt.Errorf("sim: %s: hash ID (%d) must be 0 to 2^31", path, x.ID)
			}
			ids, rows = append(ids, int64(x.ID)), max(rows, int64(x.ID)+1)
		}
	}
	w, err := workload.NewReplay(ids, 256)
	if err != nil {
		return nil, err
	}
	return unit("mooncake", w, rows, int64(share*float64(rows))), nil
}

// unit returns a stream of rows of one size, with room for so many.
func unit(name string, w workload.Workload, rows, places int64) *Stream {
	s := &Stream{Name: name, Batches: w, Slot: make([]uint32, rows), Capacity: places * unitSlot}
	for r := range s.Slot {
		s.Slot[r] = unitSlot
	}
	s.Stored = s.Slot
	return s
}

// drifting renames the rows of each phase, so that another set is hot.
type drifting struct {
	workload.Workload
	rows         int64
	first, phase int
}

func (d *drifting) NewCursor() workload.Cursor { return &driftingCursor{d.Workload.NewCursor(), d} }

type driftingCursor struct {
	workload.Cursor
	d *drifting
}

func (c *driftingCursor) Batch(i int, dst []int64) []int64 {
	n := len(dst)
	dst = c.Cursor.Batch(i, dst)
	phase := int64(max(0, i-c.d.first) / c.d.phase)
	shift := phase * (c.d.rows/3 + 1) % c.d.rows
	for j := range dst[n:] {
		dst[n+j] = (dst[n+j] + shift) % c.d.rows
	}
	return dst
}

// Optimal returns what static-optimal achieves in the measured batches, chosen anew for each phase with that phase's own
// accesses: the ceiling for a cache that does not change within a phase.
func Optimal(s *Stream) *Outcome {
	phase := s.Phase
	if phase == 0 {
		phase = s.Batches.Batches()
	}
	out := &Outcome{}
	cursor := s.Batches.NewCursor()
	counts := make([]int64, len(s.Slot))
	var rows []int64
	for first := s.Warmup; first < s.Batches.Batches(); first += phase {
		clear(counts)
		for i := first; i < min(first+phase, s.Batches.Batches()); i++ {
			rows = cursor.Batch(i, rows[:0])
			for _, r := range rows {
				counts[r]++
			}
			out.Lookups += int64(len(rows))
		}
		var order []int64
		for r, n := range counts {
			if n > 0 {
				order = append(order, int64(r))
			}
		}
		slices.SortFunc(order, func(a, b int64) int {
			if c := cmp.Compare(counts[b]*int64(s.Slot[a]), counts[a]*int64(s.Slot[b])); c != 0 {
				return c
			}
			return cmp.Compare(a, b)
		})
		room := s.Capacity
		for _, r := range order {
			if room -= int64(s.Slot[r]); room < 0 {
				break
			}
			out.Hits += counts[r]
		}
	}
	return out
}
