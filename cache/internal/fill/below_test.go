package fill

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/transfer"
)

// TestByPage: rows are in the order of their pages, and each row's page is asked for once.
func TestByPage(t *testing.T) {
	asked := 0
	page := func(row int64) int64 { return row * 7 % 10 }
	table := cold.New(nil, cold.Options{PageOf: func(row int64) uint32 {
		asked++
		return uint32(page(row)) + 1
	}})
	var rows []int64
	for row := range int64(100) {
		rows = append(rows, 99-row)
	}
	byPage := func(rows []int64) []int64 {
		keys := []uint64{hashmap.Key(0, 5), hashmap.Key(2, 5)} // of other tables
		for _, row := range rows {
			keys = append(keys, hashmap.Key(1, row))
		}
		sorted, memory := byPage(keys, 1, int64(len(rows)), table)
		defer memory.Free()
		return slices.Clone(sorted)
	}
	sorted := byPage(rows)
	if asked != len(rows) {
		t.Errorf("pages were asked for %d times, for %d rows", asked, len(rows))
	}
	if !slices.IsSortedFunc(sorted, func(a, b int64) int { return int(page(a) - page(b)) }) {
		t.Errorf("order %v", sorted)
	}
	slices.Sort(sorted)
	if slices.Sort(rows); !slices.Equal(sorted, rows) {
		t.Errorf("rows %v", sorted)
	}
	if sorted := byPage([]int64{5}); !slices.Equal(sorted, []int64{5}) {
		t.Errorf("of one row: %v", sorted)
	}
}

// broken is a source none of whose rows can be read.
type broken struct {
	fault func() error
	reads atomic.Int64
}

func (b *broken) ReadRows(_ context.Context, rows []int64, visit func(i int, stored []byte, compressed bool, err error)) (r pages.ReadStats) {
	b.reads.Add(1)
	err := b.fault()
	for i := range rows {
		visit(i, nil, false, err)
	}
	return r
}

// TestFiller_NothingRead: a table whose rows cannot be read is given up long before all its rows were tried, and one whose reads end with the context at once, with
// the context's error and nothing noted.
func TestFiller_NothingRead(t *testing.T) {
	damaged := errors.New("page 0: damaged")
	for name, cancels := range map[string]bool{"damaged": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			source := &broken{fault: func() error { return damaged }}
			if cancels {
				source.fault = func() error { cancel(); return ctx.Err() }
			}
			const rowBytes = 8 << 20 // few rows are many parts
			table := cold.New(source, cold.Options{Name: "x", RowBytes: rowBytes, Timeout: time.Minute, Log: cold.NewMemoryLog(0), PageOf: func(row int64) uint32 { return uint32(row / 16) }})
			tier, err := transfer.Load(host.Open(1, 2)[0], transfer.SourceOf(make([]byte, rowBytes), rowBytes), transfer.Options{Codec: "none"})
			if err != nil {
				t.Fatal(err)
			}
			defer tier.Close()
			f := &filler{
				o:   Options{Context: ctx, Log: slog.New(slog.DiscardHandler)},
				set: &read.Set{Tables: []*read.Table{{Name: "x", Tier: tier, Cold: table}}}, unread: []unread{{name: "x"}},
			}
			keys := make([]uint64, 100*mostFailed)
			for row := range keys {
				keys[row] = hashmap.Key(0, int64(row))
			}
			err = f.fromBelow(keys, func(*part) error { return nil })
			u := &f.unread[0]
			if cancels {
				if !errors.Is(err, context.Canceled) || u.failed != 0 || source.reads.Load() > partsRead {
					t.Errorf("error %v, %d rows noted, %d reads", err, u.failed, source.reads.Load())
				}
				return
			}
			if !errors.Is(err, cold.ErrCold) || !errors.Is(err, damaged) || source.reads.Load() > mostFailed+partsRead {
				t.Errorf("error %v after %d reads", err, source.reads.Load())
			}
			if most := int(u.failed/16) + partsRead; len(u.pages) > most {
				t.Errorf("%d pages are noted, at most %d have failed", len(u.pages), most)
			}
		})
	}
}
