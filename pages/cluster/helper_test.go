package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/pages"
)

const testRowBytes = 512

// rowsOf returns random rows.
func rowsOf(rows int, seed uint64) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	b := make([]byte, rows*testRowBytes)
	r.Read(b)
	return b
}

type rowsSource struct {
	data []byte
	next int
}

func (s *rowsSource) Rows() int     { return len(s.data) / testRowBytes }
func (s *rowsSource) RowBytes() int { return testRowBytes }
func (s *rowsSource) Close() error  { return nil }
func (s *rowsSource) Read(dst []byte) (int, error) {
	if s.next == s.Rows() {
		return 0, io.EOF
	}
	n := copy(dst, s.data[s.next*testRowBytes:]) / testRowBytes
	s.next += n
	return n, nil
}

func packTo(ctx context.Context, w pages.Writer, name string, data []byte) error {
	_, err := pages.Pack(ctx, func() (pages.Source, error) { return &rowsSource{data: data}, nil }, w,
		pages.PackOptions{Name: name, DType: dtype.Uint8, Codec: "none", Stage: "none", PageBytes: 64 << 10, Workers: 1})
	return err
}

// load packs rows into a cluster as the next generation of a table.
func load(t testing.TB, url, table string, data []byte, o Options) {
	t.Helper()
	o.Table = table
	w, err := NewWriter(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := packTo(t.Context(), w, table, data); err != nil {
		t.Fatal(err)
	}
}

// quiet has messages go to the test's log.
func quiet(t testing.TB) *slog.Logger {
	var mu sync.Mutex
	over := false
	t.Cleanup(func() { mu.Lock(); over = true; mu.Unlock() })
	return slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			t.Logf("%s", bytes.TrimSpace(b))
		}
		return len(b), nil
	}), nil))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// openTable opens a table of a cluster, alone.
func openTable(t testing.TB, url string, o Options) (*Store, *pages.Table) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet(t)
	}
	s, err := Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	table, err := pages.OpenStores(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return s, table
}

// batch reads random rows and compares those that arrive with data. It returns how many failed, and the first error.
func batch(ctx context.Context, table *pages.Table, data []byte, n int, seed uint64) (failed int64, first error) {
	r := rand.New(rand.NewPCG(seed, 9))
	rows := make([]int64, n)
	for i := range rows {
		rows[i] = r.Int64N(int64(len(data) / testRowBytes))
	}
	var fault atomic.Pointer[error]
	var bad, seen atomic.Int64
	table.ReadRows(ctx, rows, func(i int, stored []byte, compressed bool, err error) {
		seen.Add(1)
		switch {
		case err != nil:
			bad.Add(1)
			fault.CompareAndSwap(nil, &err)
		case compressed || !bytes.Equal(stored, data[rows[i]*testRowBytes:(rows[i]+1)*testRowBytes]):
			wrong := fmt.Errorf("%w: row %d", errWrongRow, rows[i])
			fault.Store(&wrong)
		}
	})
	if seen.Load() != int64(n) {
		return int64(n), fmt.Errorf("%w: visited %d of %d rows", errWrongRow, seen.Load(), n)
	}
	if p := fault.Load(); p != nil {
		first = *p
	}
	return bad.Load(), first
}

var errWrongRow = errors.New("wrong row")

// allRows reads every row once and fails the test if one is wrong or missing.
func allRows(t testing.TB, table *pages.Table, data []byte) {
	t.Helper()
	rows := make([]int64, len(data)/testRowBytes)
	for i := range rows {
		rows[i] = int64(i)
	}
	var faults atomic.Int64
	table.ReadRows(t.Context(), rows, func(i int, stored []byte, _ bool, err error) {
		if err != nil || !bytes.Equal(stored, data[i*testRowBytes:(i+1)*testRowBytes]) {
			if faults.Add(1) < 3 {
				t.Errorf("row %d: %v", i, err)
			}
		}
	})
	if n := faults.Load(); n > 0 {
		t.Fatalf("%d of %d rows are wrong", n, len(rows))
	}
}
