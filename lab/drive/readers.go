package drive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/pages"
)

// reader reads the given pages and returns how many bytes and rows it has read.
type reader interface {
	name() string
	read(ctx context.Context, wanted []uint32) (bytes, rows int64, err error)
	close()
}

// table reads one row of each page, by Table.ReadRows.
type table struct {
	*pages.Table
	engine string
}

func (t *table) name() string { return t.engine }
func (t *table) close()       { t.Close() }

func (t *table) read(ctx context.Context, wanted []uint32) (int64, int64, error) {
	wantedRows := make([]int64, len(wanted))
	for i, p := range wanted {
		from, to := t.Positions(p)
		wantedRows[i] = from + int64(i)%(to-from) // not ordered: positions are row numbers
	}
	out := make([]byte, len(wanted)*t.Manifest().RowBytes)
	var fault atomic.Pointer[error]
	stats := t.ReadRows(ctx, wantedRows, func(i int, stored []byte, _ bool, err error) {
		if err != nil {
			fault.Store(&err)
		}
		copy(out[i*t.Manifest().RowBytes:], stored)
	})
	if err := fault.Load(); err != nil {
		return 0, 0, *err
	}
	return stats.Stores[0].Bytes, stats.Rows, nil
}

// plainReader reads whole pages by goroutines, and looks at nothing.
type plainReader struct {
	files  []*os.File
	places []int64 // by page: file × 2^40 + offset
	bytes  int     // of a page, a multiple of the drive's blocks
	depth  int
	fault  error
}

func newPlain(folder string, m *pages.Manifest, depth int) *plainReader {
	p := &plainReader{bytes: m.BufferBytes(), depth: depth}
	for i := 0; ; i++ {
		f, err := open(filepath.Join(folder, fmt.Sprintf("pages-%05d", i)))
		if err != nil {
			if i == 0 {
				p.fault = err
			}
			break
		}
		p.files = append(p.files, f)
		info, err := f.Stat()
		if err != nil {
			p.fault = err
			break
		}
		for at := int64(0); at+int64(p.bytes) <= info.Size(); at += int64(p.bytes) {
			p.places = append(p.places, int64(i)<<40|at)
		}
	}
	return p
}

func (p *plainReader) name() string { return plain }

func (p *plainReader) close() {
	for _, f := range p.files {
		f.Close()
	}
}

func (p *plainReader) read(ctx context.Context, wanted []uint32) (int64, int64, error) {
	if p.fault != nil {
		return 0, 0, p.fault
	}
	wanted = slices.Clone(wanted)
	slices.Sort(wanted) // as Table.ReadRows reads
	var next, total atomic.Int64
	var fault atomic.Pointer[error]
	var wg sync.WaitGroup
	for range p.depth {
		wg.Go(func() {
			buf := aligned(p.bytes)
			for i := next.Add(1) - 1; i < int64(len(wanted)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				at := p.places[int(wanted[i])%len(p.places)]
				n, err := p.files[at>>40].ReadAt(buf, at&(1<<40-1))
				if err != nil {
					fault.Store(&err)
					return
				}
				total.Add(int64(n))
			}
		})
	}
	wg.Wait()
	if err := fault.Load(); err != nil {
		return 0, 0, *err
	}
	return total.Load(), 0, nil
}
