package kernels_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
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
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
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
				table := listedTable{coded: coded{name, of, rowBytes}}
				table.data = table.listedRows(60)
				table.codec, err = registry.Train(name, table.data, rowBytes, of)
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
	if c.dtype == dtype.Int8 {
		return c.rows(n)
	}
	return gputest.FloatRows(c.dtype, n, c.rowBytes, uint64(c.rowBytes))
}

// TestCodecs_SomeRowsShrink says that the tables of the tests of every path (paths_test.go) have rows that shrink, of every codec and element type, and of
// every codec others. (Of single lengths none may shrink: 256 bytes of float64 are too short for ndzip.)
func TestCodecs_SomeRowsShrink(t *testing.T) {
	raw, compressed := map[string]int{}, map[string]int{}
	for _, table := range listed(t) {
		if table.codec == nil {
			continue
		}
		_, hits := encodeSlabs(table.codec, table.data, table.rowBytes, len(table.data)/table.rowBytes, 1)
		of := fmt.Sprintf("%s of %v", table.name, table.dtype)
		compressed[of] += 0
		for _, h := range hits {
			if slab.Location(h.Word).Compressed() {
				compressed[of]++
			} else {
				raw[table.name]++
			}
		}
		raw[table.name] += 0
	}
	for of, n := range compressed {
		if n == 0 {
			t.Errorf("%s: no row is compressed", of)
		}
	}
	for name, n := range raw {
		if n == 0 {
			t.Errorf("%s: no row is raw", name)
		}
	}
}

// TestCodecs_CorruptMisses damages rows in place: the kernels that fetch misses, alone, shared or in one launch with hits, find the same rows
// corrupt as the Go codec, and write nothing outside the output.
func TestCodecs_CorruptMisses(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, table := range listed(t) {
		if table.name == registry.None || table.rowBytes > kernels.MaxShareRow {
			continue
		}
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/shared=%v", table, shared), func(t *testing.T) {
				const n = 200
				data := table.listedRows(n)
				misses := make([]kernels.Found, n)
				for i := range misses {
					misses[i] = kernels.Found{Word: uint64(i), Position: uint32(i)}
				}
				both(t, gpu, reason, func(b *bench) uint32 {
					r := rand.New(rand.NewPCG(uint64(table.rowBytes), 17))
					tier, err := transfer.Load(b.d, transfer.SourceOf(data, table.rowBytes), transfer.Options{Codec: table.name, DType: table.dtype, OnHost: true})
					b.check(err)
					defer tier.Close()
					k, out, detach := fetchOf(b, tier, misses)
					defer detach()
					for i := range n {
						row := k.Tier.Mem.Bytes()[int64(i)*k.Tier.Stride:][:table.rowBytes]
						switch r.IntN(3) {
						case 0:
							row[r.IntN(8)] ^= 1 << r.IntN(8)
						case 1:
							for j := range row {
								row[j] = byte(r.Uint32())
							}
						}
					}
					if shared {
						b.launch(&kernels.ShareFetch{Fetch: *k})
					} else {
						b.launch(k)
					}
					out.read(b)
					return b.counters(k.Counters).Corrupt
				}, func(t *testing.T, want, got uint32) {
					if want != got {
						t.Fatalf("%d corrupt rows, want %d", got, want)
					}
				})
			})
		}
	}
}
