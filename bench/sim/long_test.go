//go:build long

package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

// TestLong_PolicyTable prints the tables of docs/admission.md and fails unless the default policy is the best one on
// average, and reaches what it must.
func TestLong_PolicyTable(t *testing.T) {
	streams := tableStreams(t)
	var table strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&table, "| %s |\n", strings.Join(cells, " | ")) }
	head := []string{"policy"}
	for _, s := range streams {
		head = append(head, s.Name)
	}
	line(head...)
	line(slices.Repeat([]string{"---"}, len(head))...)
	sums := map[string]float64{}
	for _, name := range admission.Names() {
		spec, err := admission.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Learns == admission.FromFuture {
			continue
		}
		cells := []string{"`" + name + "`"}
		for _, s := range streams {
			if spec.Learns == admission.FromGraph && s.Graph == nil {
				cells = append(cells, "-")
				continue
			}
			cell := []string{}
			for _, sampling := range []float64{1, 1. / 16} {
				if spec.Learns == admission.FromGraph && sampling != 1 {
					continue
				}
				out := simulate(t, s, spec, Options{Static: !spec.Online, Sampling: sampling})
				cell = append(cell, percent(out.HitRatio()))
				if sampling == 1 {
					sums[name] += out.HitRatio() / float64(len(streams))
					if spec.Online {
						cell[0] += fmt.Sprintf(" (%.1f)", 100*float64(out.Churned)/float64(s.Capacity)/float64(out.Refreshes))
					}
				}
			}
			cells = append(cells, strings.Join(cell, " / "))
		}
		line(cells...)
	}
	cells := []string{"static-optimal, each phase"}
	for _, s := range streams {
		cells = append(cells, percent(Optimal(s).HitRatio()))
	}
	line(cells...)
	last := streams[len(streams)-1]
	line("Belady", "", "", "", "", percent(Belady(last, int(last.Capacity/unitSlot)).HitRatio()))
	t.Logf("hit rate in %%, (slot bytes written a refresh, %% of the cache); all accesses / one in sixteen observed\n%s", &table)

	for name, sum := range sums {
		if sum > sums[admission.Default] {
			t.Errorf("%s hits %.4f on average, the default %.4f", name, sum, sums[admission.Default])
		}
	}
	spec, _ := admission.Lookup(admission.Default)
	var more strings.Builder
	for _, o := range []Options{{Sampling: 1. / 4}, {Every: 1}, {Every: 16}, {Churn: 0.05}} {
		fmt.Fprintf(&more, "%+v:", o)
		for _, s := range streams {
			fmt.Fprintf(&more, " %s", percent(simulate(t, s, spec, o).HitRatio()))
		}
		more.WriteByte('\n')
	}
	t.Logf("%s with other options\n%s", admission.Default, &more)
	for i, least := range []float64{Optimal(streams[0]).HitRatio() - 0.02, 0.9 * Optimal(streams[1]).HitRatio()} {
		if out := simulate(t, streams[i], spec, Options{}); out.HitRatio() < least {
			t.Errorf("%s: hit ratio %.4f, want at least %.4f", streams[i].Name, out.HitRatio(), least)
		}
	}
}

func percent(ratio float64) string { return fmt.Sprintf("%.1f", 100*ratio) }

func simulate(t *testing.T, s *Stream, spec admission.Spec, o Options) *Outcome {
	t.Helper()
	var in admission.Inputs
	if s.Graph != nil {
		in.Graphs = []admission.Graph{{Indptr: s.Graph.Indptr, Indices: s.Graph.Indices}}
	}
	p, err := spec.New(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Run(s, p, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tableStreams returns the streams of the table, their batches computed once.
func tableStreams(t *testing.T) []*Stream {
	t.Helper()
	var streams []*Stream
	add := func(s *Stream, err error) *Stream {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		m := &inMemory{Workload: s.Batches}
		cursor := s.Batches.NewCursor()
		for i := range s.Batches.Batches() {
			m.batches = append(m.batches, cursor.Batch(i, nil))
		}
		s.Batches = m
		streams = append(streams, s)
		return s
	}
	add(Generated(500_000, 50, 200, 1))
	add(Generated(500_000, 50, 200, 3))
	add(File(realdata.Table(t, "cora.npz"), 0.01))
	add(File(realdata.Table(t, "reddit.npz"), 0.05))
	s := add(mooncake(t, 0.05), nil)
	s.Warmup = s.Batches.Batches() / 4
	return streams
}

type inMemory struct {
	workload.Workload
	batches [][]int64
}

func (m *inMemory) NewCursor() workload.Cursor       { return m }
func (m *inMemory) Batch(i int, dst []int64) []int64 { return append(dst, m.batches[i]...) }
