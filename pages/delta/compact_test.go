package delta

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestLog_Compact: the newest versions stay, also of rows that are appended meanwhile, and the files are no longer than these need.
func TestLog_Compact(t *testing.T) {
	for _, durable := range []bool{false, true} {
		dir := t.TempDir()
		l := open(t, dir, Options{Durable: durable, SegmentBytes: 5000})
		want := map[int64]Row{}
		fill(t, l, 2000, want, rand.New(rand.NewPCG(1, 1)))
		before := l.Stats()
		var all [4]map[int64]Row
		var beside sync.WaitGroup
		for g := range all {
			all[g] = map[int64]Row{}
			beside.Go(func() {
				r := rand.New(rand.NewPCG(2, uint64(g)))
				for i := range 300 {
					row := version(r.Int64N(testRows/4)*4+int64(g), 5000+i)
					if err := l.Append([]Row{row}); err != nil {
						t.Error(err)
					}
					all[g][row.Row] = row
				}
			})
		}
		for range 5 {
			if err := l.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		beside.Wait()
		for _, some := range all {
			for row, v := range some {
				want[row] = v
			}
		}
		expect(t, l, want)
		if err := l.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := l.Stats()
		if s.SegmentBytes > s.StoredBytes+s.Rows*rowEntry+s.Segments*(segmentHeader+4*batchHeader) || s.SegmentBytes > before.SegmentBytes || s.AppendedRows != before.AppendedRows+4*300 {
			t.Errorf("%+v, before %+v", s, before)
		}
		expect(t, l, want)
		l.Close()
		expect(t, open(t, dir, Options{}), want)
	}
}

// TestLog_CompactFails: a log that cannot be compacted, because a row is damaged or the context has ended, has what it had.
func TestLog_CompactFails(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	want := map[int64]Row{}
	fill(t, l, 50, want, rand.New(rand.NewPCG(1, 1)))
	ended, end := context.WithCancel(t.Context())
	end()
	if err := l.Compact(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	expect(t, l, want)
	var some Row
	for _, some = range want {
		break
	}
	at := l.mu.index[some.Row]
	f, err := os.OpenFile(filepath.Join(dir, segmentName(at.segment.number)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{some.Stored[0] ^ 1}, at.at); err != nil {
		t.Fatal(err)
	}
	if err := l.Compact(t.Context()); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	if _, err := f.WriteAt(some.Stored[:1], at.at); err != nil {
		t.Fatal(err)
	}
	expect(t, l, want)
	if err := l.Compact(t.Context()); err != nil {
		t.Error(err)
	}
	expect(t, l, want)
}

// TestOpen_ReadOnly: what a log has can be read while another opening of it appends, and nothing of it changes. A folder that is not there has no rows.
func TestOpen_ReadOnly(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{Durable: true, SegmentBytes: 500})
	want := map[int64]Row{}
	fill(t, l, 20, want, rand.New(rand.NewPCG(1, 1)))
	read := open(t, dir, Options{ReadOnly: true})
	expect(t, read, want)
	if err := read.Append([]Row{version(1, 1)}); !errors.Is(err, errReadOnly) {
		t.Error(err)
	}
	if _, err := read.Seal(); !errors.Is(err, errReadOnly) {
		t.Error(err)
	}
	numbers, err := listSegments(dir)
	if err != nil {
		t.Fatal(err)
	}
	last := filepath.Join(dir, segmentName(numbers[len(numbers)-1]))
	f, err := os.OpenFile(last, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(encodeBatch(nil, l.mu.next, true, 0, []Row{version(1, 2)})[:40]); err != nil { // being written
		t.Fatal(err)
	}
	f.Close()
	torn, err := os.Stat(last)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, open(t, dir, Options{ReadOnly: true}), want)
	if now, err := os.Stat(last); err != nil || now.Size() != torn.Size() {
		t.Errorf("%v: the log has changed", err)
	}
	none := filepath.Join(dir, "none")
	expect(t, open(t, none, Options{ReadOnly: true}), map[int64]Row{})
	if _, err := os.Stat(none); err == nil {
		t.Error("a folder was made")
	}
}

// TestOpen_ReadOnlyBesideMerges: a log is opened for reading alone while segments of it are removed.
func TestOpen_ReadOnlyBesideMerges(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{SegmentBytes: 300})
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := l.Append([]Row{version(int64(i%50), i)}); err != nil {
				t.Error(err)
			}
			if i%20 == 0 {
				if err := l.Compact(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 100 {
		r, err := Open(dir, manifest(), Options{ReadOnly: true})
		if err != nil {
			t.Error(err)
			continue
		}
		for row := range r.mu.index {
			if _, _, err := r.Read(row, nil); err != nil {
				t.Error(err)
			}
		}
		r.Close()
	}
	close(stop)
	beside.Wait()
}
