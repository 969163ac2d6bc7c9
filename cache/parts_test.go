package cache_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
)

// partsTable returns rows of 64 float8 values and 2 scales, in an order of rows that the codec shortens and, every fifth, of noise.
func partsTable(t testing.TB, rows int) (cache.Table, []byte) {
	t.Helper()
	of, err := dtype.Parse("float8_e4m3fn*64,float8_e8m0fnu*2")
	if err != nil {
		t.Fatal(err)
	}
	data := gputest.PartsRows(of, rows, 7)
	for i := range data { // no NaN
		if data[i]&0x7f == 0x7f {
			data[i]--
		}
	}
	table, err := cache.FromBytes("parts", of, data, of.Size())
	if err != nil {
		t.Fatal(err)
	}
	return table, data
}

// checkParts reads tables of rows of parts by every path of a backend: in place, packed, resident and from pages, with updates, and added up.
func checkParts(t *testing.T, backend cache.Backend) {
	const rows, rowBytes = 3000, 66
	r := rand.New(rand.NewPCG(3, 9))
	for name, open := range map[string]func(table cache.Table, o cache.Options) (cache.Table, cache.Options){
		"in place": func(table cache.Table, o cache.Options) (cache.Table, cache.Options) { return table, o },
		"packed": func(table cache.Table, o cache.Options) (cache.Table, cache.Options) {
			o.Host.Tier = cache.Packed
			return table, o
		},
		"resident": func(table cache.Table, o cache.Options) (cache.Table, cache.Options) {
			o.Budget = 1 << 20
			return table.ResidentWith(cache.ResidentOptions{Target: 48}), o
		},
		"pages": func(table cache.Table, o cache.Options) (cache.Table, cache.Options) {
			_, data := partsTable(t, rows)
			paged, err := cache.FromPages(packedAs(t, data, rowBytes, table.DType(), "parts", nil))
			if err != nil {
				t.Fatal(err)
			}
			return paged, o
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, data := partsTable(t, rows)
			table, o := open(table, cache.Options{Budget: 40_000, Codec: "parts", Devices: cache.DeviceOptions{Backend: backend}})
			o.Tables = []cache.Table{table}
			c := newCache(t, o)
			check(t, c, data, allOf(rows))
			s := stats(t, c).Tables[0]
			if s.Codec != "parts" || s.DType.String() != "float8_e4m3fn*64,float8_e8m0fnu*2" || s.StoredBytes >= s.RawBytes*95/100 || s.RawRows == 0 && name != "pages" {
				t.Errorf("codec %s of %v, %d of %d bytes, %d rows raw", s.Codec, s.DType, s.StoredBytes, s.RawBytes, s.RawRows)
			}
			// Values times scales, with the model's sums.
			p := pooling{Pooling: cache.Pooling{Offsets: []int64{0, 1, 2, 5}}, Output: dtype.Float32, Float8: cache.Float8{Values: dtype.Float8E4M3FN, Scales: dtype.Float8E8M0FNU, Block: 32}}
			ids := []int64{0, 7, 8, 9, 10}
			sums := make([]byte, 4*64*4)
			if err := c.Gather(ctx, p.host(0, ids, sums)); err != nil {
				t.Fatal(err)
			}
			for i, row := range ids[:2] {
				for j := range 64 {
					in := data[int(row)*rowBytes:][:rowBytes]
					want := float32(float8Value(in[j], dtype.Float8E4M3FN) * math.Ldexp(1, int(in[64+j/32])-127))
					if got := elementOf(sums[(64*i+j)*4:]); got != want {
						t.Fatalf("row %d, element %d: %g, want %g", row, j, got, want)
					}
				}
			}
			p.Float8.Block = 64
			if err := c.Gather(ctx, p.host(0, ids, sums)); err == nil {
				t.Error("sums with a scale for each 64 values of rows with 2")
			}
			// The table's type says what the rows are, too.
			wide := wideParts(data)
			for round := range 5 {
				p, ids := drawPooling(r, rows, []int{900, 60}[round%2])
				if round == 0 {
					p, ids = pooling{Pooling: cache.Pooling{Bag: 1}, Output: dtype.BFloat16}, allOf(700)
				}
				size, _ := pooledOut(&p, dtype.Float32, 64, len(ids))
				out := make([]byte, size)
				gather := func() error { return c.Gather(ctx, p.host(0, ids, out)) }
				if round == 0 {
					gather = func() error { return c.Gather(ctx, cache.Request{Rows: ids, Out: out, As: dtype.BFloat16}) }
				}
				if err := gather(); err != nil {
					t.Fatal(err)
				}
				checkPooled(t, wide, dtype.Float32, 64, ids, &p, out, fmt.Sprint("round ", round))
			}
			if name == "pages" {
				return
			}
			updated := allOf(rows)[100:160]
			_, other := partsTable(t, rows+60)
			if err := c.Update(ctx, 0, updated, other[rows*rowBytes:]); err != nil {
				t.Fatal(err)
			}
			copy(data[100*rowBytes:], other[rows*rowBytes:])
			check(t, c, data, randomRows(r, 4000, rows))
		})
	}
}

// wideParts returns rows of 64 values and two scales as float32.
func wideParts(data []byte) (wide []byte) {
	for ; len(data) > 0; data = data[66:] {
		for j := range 64 {
			x := float32(float8Value(data[j], dtype.Float8E4M3FN) * math.Ldexp(1, int(data[64+j/32])-127))
			wide = binary.LittleEndian.AppendUint32(wide, math.Float32bits(x))
		}
	}
	return wide
}

func elementOf(b []byte) float32 {
	return math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
}

func TestParts_EveryPath(t *testing.T) {
	race.SkipSequential(t)
	checkParts(t, cache.BackendHost)
}

// TestParts_AutoPicksThem: auto picks the codec that knows parts, and others store the rows as bytes.
func TestParts_AutoPicksThem(t *testing.T) {
	for _, codec := range []cache.Codec{"auto", "zipnn", "ibp4", "sparse", "none"} {
		table, data := partsTable(t, 3000)
		c := newCache(t, cache.Options{Tables: []cache.Table{table}, Codec: codec, Budget: 40_000})
		check(t, c, data, allOf(3000))
		want := codec
		if codec == "auto" {
			want = "parts"
		}
		if s := stats(t, c).Tables[0]; s.Codec != string(want) {
			t.Errorf("codec %s: %s, choice %+v", codec, s.Codec, s.Choice)
		}
	}
}

// TestParts_SnapshotOfOthers: a snapshot of rows of parts restores those of the same parts only.
func TestParts_SnapshotOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	table, data := partsTable(t, 300)
	c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 1 << 20})
	if err := c.Snapshot(path); err != nil {
		t.Fatal(err)
	}
	for of, same := range map[string]bool{"float8_e4m3fn*64,float8_e8m0fnu*2": true, "float8_e5m2*64,float8_e8m0fnu*2": false, "uint8": false} {
		as, err := dtype.Parse(of)
		if err != nil {
			t.Fatal(err)
		}
		table, err := cache.FromBytes("parts", as, bytes.Clone(data), 66)
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 1 << 20, Admission: cache.AdmissionOptions{Cold: true, Restore: path}})
		if s := stats(t, c); (s.RestoreError == "") != same || (s.RestoredRows == 300) != same {
			t.Errorf("%s: %d rows restored, %q", of, s.RestoredRows, s.RestoreError)
		}
	}
}

// TestTable_Parts takes rows of bytes for rows of parts of that length, and refuses other lengths.
func TestTable_Parts(t *testing.T) {
	row, err := dtype.Parse("int8*60,float32")
	if err != nil {
		t.Fatal(err)
	}
	table := fromBytes(t, "t", make([]byte, 640), 64)
	as, err := table.WithDType(row)
	if err != nil || as.DType() != row {
		t.Errorf("%v, %v", as.DType(), err)
	}
	if back, err := as.WithDType(dtype.Float32); err != nil || back.DType() != dtype.Float32 {
		t.Errorf("back: %v, %v", back.DType(), err)
	}
	for want, call := range map[string]func() (cache.Table, error){
		"cache: table t: row of parts (int8*60,float32, 64 bytes) must have the row's 32 bytes": func() (cache.Table, error) {
			return fromBytes(t, "t", make([]byte, 640), 32).WithDType(row)
		},
		"cache: table t: row (128 bytes) must have the 64 bytes of int8*60,float32": func() (cache.Table, error) { return cache.FromBytes("t", row, make([]byte, 640), 128) },
	} {
		if _, err := call(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
