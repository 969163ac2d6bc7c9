package kernels_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
)

// listedCodecs are the names of all codecs of the registry: one that is added there is tested by what follows. Codecs with an option
// are error-bounded ones. Those that choose among others come last.
func listedCodecs() []string {
	names := append([]string{registry.None}, registry.Concrete()...)
	for _, usage := range registry.Usage() {
		name, _, option := strings.Cut(usage, ":")
		if option {
			name += ":0.001"
		}
		if name != registry.Auto && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// listedTable is a table with rows, of which its codec makes some shorter.
type listedTable struct {
	coded
	codec codec.Codec // nil for rows as they are
	data  []byte

	columns bool // they have different scales
}

func (c listedTable) String() string {
	if c.columns {
		return c.coded.String() + "/columns"
	}
	return c.coded.String()
}

// listedTables are the codecs with every element type that they serve, each with some of the row lengths: of words, pairs and quads, those
// of one warp and of several, and long rows. A table that stores the same bytes as another one, for the same kernels, is left out: rows
// without a codec are of one type, and a codec that chooses among others is not there beside them.
var listedTables = sync.OnceValues(func() (tables []listedTable, err error) {
	all := []int{256, 300, 516, 264, 1032, 4096, 8208}
	known := map[string]bool{}
	for _, name := range listedCodecs() {
		for i, of := range []dtype.Type{dtype.Float32, dtype.BFloat16, dtype.Float64, dtype.Float16, dtype.Int8} {
			lengths := all
			if short() {
				lengths = []int{all[i%len(all)], all[(i+2)%len(all)]}
			}
			for _, rowBytes := range race.Some(lengths) {
				table := listedTable{coded: codedOf(name, of, rowBytes)}
				table.data = table.listedRows(60)
				table.codec, err = registry.Train(name, table.data, rowBytes, table.dtype)
				if errors.Is(err, codec.ErrDType) {
					continue
				}
				if err != nil {
					return nil, fmt.Errorf("%v: %w", table, err)
				}
				if key := table.stored(); !known[key] {
					known[key] = true
					tables = append(tables, table)
				}
			}
		}
	}
	// Rank has bases for tables with columns of different scales, and kernels of its own for those.
	for i, of := range []dtype.Type{dtype.Float32, dtype.BFloat16} {
		lengths := all
		if short() {
			lengths = []int{512, 300 - 36*i}
		}
		for _, rowBytes := range race.Some(lengths) {
			if rowBytes > 4096 {
				continue
			}
			table := listedTable{coded: coded{"rank", of, rowBytes}, columns: true}
			table.data = table.listedRows(300)
			if table.codec, err = registry.Train("rank", table.data, rowBytes, of); err != nil {
				return nil, err
			}
			if form := table.codec.(codec.OnDevice).DeviceForm(); form.Kernel != fmt.Sprint("rankb", of.Size()) {
				return nil, fmt.Errorf("%v has kernels %s", table, form.Kernel)
			}
			tables = append(tables, table)
		}
	}
	return tables, nil
})

// stored returns a hash of what a device has of the table.
func (c listedTable) stored() string {
	h := sha256.New()
	fmt.Fprintln(h, c.rowBytes)
	if on, ok := c.codec.(codec.OnDevice); ok {
		form := on.DeviceForm()
		metadata := form.Metadata
		form.Metadata = nil
		fmt.Fprintf(h, "%+v\n", form)
		h.Write(metadata)
		slabs, hits := encodeSlabs(c.codec, c.data, c.rowBytes, c.rows(), 1)
		h.Write(asBytes(hits))
		h.Write(slabs[0])
	}
	return string(h.Sum(nil))
}

// listed returns listedTables.
func listed(t *testing.T) []listedTable {
	t.Helper()
	tables, err := listedTables()
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// listedRows are rows of which every codec makes some shorter, and some not.
func (c coded) listedRows(n int) []byte {
	if c.dtype == dtype.Int8 || c.dtype.IsRow() || c.name == "sparse" {
		return c.rows(n)
	}
	return gputest.FloatRows(c.dtype, n, c.rowBytes, uint64(c.rowBytes))
}

// listedRows are rows like the table's.
func (c listedTable) listedRows(n int) []byte {
	if c.columns {
		return columnRows(c.dtype.Size(), n, c.rowBytes)
	}
	return c.coded.listedRows(n)
}

// columnRows are rows of floats, of 2 or 4 bytes each, whose columns have different scales. Every tenth row is random bytes.
func columnRows(elementBytes, n, rowBytes int) []byte {
	r := rand.New(rand.NewPCG(uint64(rowBytes), 13))
	scale := make([]float64, rowBytes/elementBytes)
	for j := range scale {
		scale[j] = math.Exp2(4 * r.NormFloat64())
	}
	data := make([]byte, 0, n*rowBytes)
	for i := range n {
		end := len(data) + rowBytes
		for j := 0; i%10 != 9 && j < len(scale); j++ {
			x := math.Float32bits(float32((r.NormFloat64() + 1) * scale[j]))
			data = binary.LittleEndian.AppendUint32(data, x<<16|x>>16)[:len(data)+elementBytes]
			if elementBytes == 4 {
				binary.LittleEndian.PutUint32(data[len(data)-4:], x)
			}
		}
		for len(data) < end {
			data = append(data, byte(r.Uint32()))
		}
	}
	return data
}

// batchRows is the number of rows of each batch.
func (c listedTable) batchRows() int {
	if short() {
		return manyRows(c.rowBytes)
	}
	return min(20_003, 4_000_000/c.rowBytes)
}

// manyRows returns how many rows of a length a batch must have, with -short, for the tiles of one block of four warps to decode dozens each.
func manyRows(rowBytes int) int { return max(101, min(1003, 150_001/rowBytes)) }

// rows returns the number of the table's rows.
func (c listedTable) rows() int { return len(c.data) / c.rowBytes }

// served returns what the codec restores of what it stores of each row: another row where it loses bits.
func (c listedTable) served(t *testing.T) (rows [][]byte) {
	t.Helper()
	for r := range c.rows() {
		row := c.data[r*c.rowBytes:][:c.rowBytes]
		if c.codec != nil {
			dst := make([]byte, c.codec.EncodeBound())
			if n, err := c.codec.Encode(dst, row); err == nil {
				row = make([]byte, c.rowBytes)
				if _, err := c.codec.Decode(row, dst[:n]); err != nil {
					t.Fatal(err)
				}
			} else if !errors.Is(err, codec.ErrIncompressible) {
				t.Fatal(err)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// equal fails at the first row that is not the wanted one.
func (c listedTable) equal(t *testing.T, want, got []byte) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	for at := 0; at < len(want); at += c.rowBytes {
		if !bytes.Equal(want[at:][:c.rowBytes], got[at:][:c.rowBytes]) {
			t.Fatalf("row at position %d differs from its source", at/c.rowBytes)
		}
	}
}
