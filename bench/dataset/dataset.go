// Package dataset makes the tables that cachebench works on: read from files or generated, and cast on request. Several caches can be
// made of one table, and their rows checked against it.
package dataset

import (
	"fmt"
	"os"
	"slices"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/datafile"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/internal/tablefile"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/delta"
	"github.com/tensorcache/tensorcache/slab"
)

// Table is a table: rows back to back, little-endian. It must not change while it is in use.
type Table struct {
	Name     string
	DType    dtype.Type
	Rows     int
	RowBytes int
	// Data are the rows: in memory, or mapped from the file that they lie in as they are; nil if they lie in pages.
	Data []byte

	pages  *pageTable   // not nil: the rows are in pages
	path   string       // of the file that Data is mapped from; "" for memory
	memory *numa.Memory // nil: Data is the Go heap's or mapped
}

// Load opens a file, or a directory of page files, as cache.Open does. A file must not change while the table is in use. Of a directory with updates
// the newest versions are read, as they are when it is opened; caches made of it keep further updates in memory.
func Load(path string) (*Table, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() && !tablefile.IsCheckpoint(path) {
		return FromPages(func() (*pages.Table, error) {
			return delta.OpenTable(path, delta.Folder(path), func() (*pages.Table, error) { return pages.Open(path, pages.FileOptions{}) })
		})
	}
	r, err := tablefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t := &Table{Name: r.Name(), DType: r.DType(), Rows: r.Rows(), RowBytes: r.RowBytes()}
	if t.RowBytes > slab.MaxRowBytes {
		return nil, fmt.Errorf("dataset: %s: row (%d bytes) must be shorter than 1 MiB (%d)", t.Name, t.RowBytes, slab.MaxRowBytes+1)
	}
	if t.Data, err = r.Map(); err != nil {
		return nil, err
	}
	if t.Data != nil {
		t.path = path
		return t, nil
	}
	// Outside the Go heap: the collector would let that grow by a part of the table again.
	t.Data, t.memory = numa.Make[byte](int64(t.Rows) * int64(t.RowBytes))
	for rest := t.Data; len(rest) > 0; {
		n, err := r.Read(rest)
		if err != nil {
			return nil, err
		}
		rest = rest[n*t.RowBytes:]
	}
	return t, nil
}

// Generate returns a table of float32 rows: column j is N(0,1) scaled by exp(z_j), z_j from N(0,1).
func Generate(rows, columns int, seed uint64) (*Table, error) {
	data, err := workload.Features(rows, columns, seed)
	if err != nil {
		return nil, err
	}
	return &Table{Name: "generated", DType: dtype.Float32, Rows: rows, RowBytes: 4 * columns, Data: data}, nil
}

// Normal returns a table of float32 rows of N(0,1).
func Normal(rows, columns int, seed uint64) (*Table, error) {
	data, err := workload.Normals(rows, columns, seed)
	if err != nil {
		return nil, err
	}
	return &Table{Name: "generated", DType: dtype.Float32, Rows: rows, RowBytes: 4 * columns, Data: data}, nil
}

// WithRows returns the table with its bytes divided into rows of another length, which its bytes must be a multiple of. Rows of parts cannot be divided.
func (t *Table) WithRows(rowBytes int) (*Table, error) {
	if t.DType.IsRow() {
		return nil, fmt.Errorf("dataset: %s: rows of parts (%s) must stay as they are", t.Name, t.DType)
	}
	if t.Bytes()%int64(rowBytes) != 0 || rowBytes > slab.MaxRowBytes {
		return nil, fmt.Errorf("dataset: %s: bytes (%d) must be whole rows of %d, which must be at most %d", t.Name, t.Bytes(), rowBytes, slab.MaxRowBytes)
	}
	as := *t
	as.Rows, as.RowBytes = int(t.Bytes()/int64(rowBytes)), rowBytes
	return &as, nil
}

// StandIn returns a table of workload.StandIns.
func StandIn(name string, seed uint64) (*Table, error) {
	s, err := workload.FindStandIn(name)
	if err != nil {
		return nil, err
	}
	data, err := s.Table(s.Rows, seed)
	return &Table{Name: s.Name, DType: s.DType, Rows: s.Rows, RowBytes: s.RowBytes(), Data: data}, err
}

// Open returns the table as a cache takes it. The data are not copied before cache.New does. What lies in a file is read from there, so
// that its pages do not count as memory of the process.
func (t *Table) Open() (cache.Table, error) {
	if t.pages != nil {
		return t.pages.forCache()
	}
	if t.path != "" {
		of, err := cache.Open(t.path)
		if err != nil || of.DType() == t.DType {
			return of, err
		}
		return of.WithDType(t.DType)
	}
	return cache.FromBytes(t.Name, t.DType, t.Data, t.RowBytes)
}

// Unload says that rows [from, to) are not used for now: if they lie in a file, they take no memory until they are used again.
func (t *Table) Unload(from, to int) {
	if t.path != "" {
		datafile.Unload(t.Data[from*t.RowBytes : to*t.RowBytes])
	}
}

// Sample returns what codec.Sample does of the table.
func (t *Table) Sample(seed uint64) []byte {
	var sample []byte
	done := 0
	for part := range slices.Chunk(codec.SampleRows(int64(t.Rows), t.RowBytes, seed), 256) { // ascending
		sample = append(sample, codec.Gather(t.Data, part, t.RowBytes, int64(t.RowBytes))...)
		end := int(part[len(part)-1]) + 1
		t.Unload(done, end)
		done = end
	}
	t.Unload(0, t.Rows) // the system maps pages ahead, too
	return sample
}

// Bytes returns the length of all rows.
func (t *Table) Bytes() int64 { return int64(t.Rows) * int64(t.RowBytes) }

// Row returns the bytes of row i of a table that is not Paged.
func (t *Table) Row(i int64) []byte { return t.Data[int(i)*t.RowBytes:][:t.RowBytes] }
