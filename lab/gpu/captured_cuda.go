//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
)

// inARow is how many replays are enqueued at once where what one of them costs the device is measured.
const inARow = 100

// captured measures replays of graphs with one Gather each, beside replays of graphs with one plain gather kernel.
func (s *served) captured(of *table) {
	for _, n := range []int{1, 32, 1024, hitBatch, 8192} {
		out := s.alloc(int64(n * s.rowBytes))
		s.replays(s.mixed(n, 0), of.mem, out, "hits", "replay of a plain gather, uncompressed")
		s.replays(s.mixed(n*8/10, n-n*8/10), of.host, out, "80 % hits", "replay of a plain zero-copy of all rows, uncompressed")
	}
}

func (s *served) replays(t turns, mem, out device.Buffer, label, baseline string) {
	plain := t.plain(mem, out, s.rowBytes)
	alone, aloneInARow := s.timeReplays(func(i int) error { return s.stream.Launch(plain[i]) })
	start := get(s.cache.Stats())
	var batches []*cache.Batch
	own, ownInARow := s.timeReplays(func(i int) error {
		b, err := s.begin(t.rows[i], out)
		batches = append(batches, b)
		return err
	})
	for _, b := range batches {
		must(b.Wait())
	}
	s.checkHits(t, get(s.cache.Stats()).Sub(start).Tables[0])
	check(s.d, "replay", out, s.source, t.numbers[sets-1], s.rowBytes)
	for _, b := range batches {
		b.Release()
	}
	x := s.result("captured", t.size())
	x.Codec, x.Unit, x.Value, x.Baseline, x.BaselineValue = label, "us", own*1e6, baseline, alone*1e6
	x.Further = []Further{{Name: "one of many in a row", Value: ownInARow * 1e6}, {Name: "the same of the baseline", Value: aloneInARow * 1e6}}
	x.Detail = fmt.Sprintf("between events; one of %d in a row %.1f, of the baseline %.1f", inARow, ownInARow*1e6, aloneInARow*1e6)
	s.add(x)
}

// timeReplays captures what enqueue enqueues for each of the sets, and returns the median seconds of a replay: alone, and as one of many. The
// replay of the last set runs last.
func (s *served) timeReplays(enqueue func(set int) error) (alone, inRow float64) {
	stream := s.stream.(*cuda.Stream)
	var graphs [sets]*cuda.Graph
	defer func() {
		for _, g := range graphs {
			if g != nil {
				g.Close()
			}
		}
	}()
	for i := range graphs {
		graphs[i] = get(stream.Capture(false, func() error { return enqueue(i) }))
	}
	alone = s.timeAfter(5*s.o.Runs, nil, func(i int) error { return graphs[i%sets].Launch(stream) })
	inRow = s.time(func(int) (err error) {
		for i := range inARow {
			err = errors.Join(err, graphs[i%sets].Launch(stream))
		}
		return err
	}) / inARow
	return alone, inRow
}
