package cache_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
)

// TestStats_CodecsOfTables: each table has the codec that was set for it, and Stats has the reasons of CodecAuto for the other table.
func TestStats_CodecsOfTables(t *testing.T) {
	data := bytes.Repeat([]byte("a table whose rows repeat, 32 B."), 2000)
	table := func() cache.Table { return fromBytes(t, "t", data, 32) }
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table(), table().WithCodec("ibp8"), table().WithCodec("none")}, Budget: 1 << 16, Devices: cache.DeviceOptions{Backend: "host"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	choice := s.Tables[0].Choice
	if choice == nil || choice.Codec != s.Tables[0].Codec || choice.Reason == "" || len(choice.Candidates) < 3 {
		t.Errorf("auto: codec %s, choice %+v", s.Tables[0].Codec, choice)
	}
	for i, want := range []string{"ibp8", "none"} {
		if got := s.Tables[1+i]; got.Codec != want || got.Choice != nil {
			t.Errorf("table %d: codec %s, choice %+v, want %s", 1+i, got.Codec, got.Choice, want)
		}
	}
	out := make([]byte, 64)
	for i := range 3 {
		if err := c.Gather(context.Background(), cache.Request{Table: i, Rows: []int64{1999, 0}, Out: out}); err != nil || !bytes.Equal(out, data[:64]) {
			t.Errorf("table %d: %q, %v", i, out, err)
		}
	}
	_, err = cache.New(cache.Options{Tables: []cache.Table{table().WithCodec("zip")}, Budget: 1 << 16, Devices: cache.DeviceOptions{Backend: "host"}})
	if err == nil || !strings.Contains(err.Error(), `cache: table t: codec: unknown codec ("zip")`) {
		t.Errorf("codec zip: %v", err)
	}
}

// TestTable_WithDType takes bytes for float8, and refuses elements of another length.
func TestTable_WithDType(t *testing.T) {
	race.SkipSequential(t)
	data := make([]byte, 1000*64)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(48 + r.NormFloat64()*4)
	}
	for _, of := range []dtype.Type{dtype.Float8E4M3FN, dtype.Float8E5M2, dtype.Float8E8M0FNU, dtype.Int8} {
		for _, codec := range []cache.Codec{"auto", "zipnn", "sparse", "ibp4"} {
			table, err := fromBytes(t, "t", data, 64).WithDType(of)
			if err != nil || table.DType() != of {
				t.Fatalf("%v, %v, want %v", table.DType(), err, of)
			}
			c, err := cache.New(cache.Options{Tables: []cache.Table{table.WithCodec(codec)}, Budget: 1 << 15, Devices: cache.DeviceOptions{Backend: "host"}})
			if err != nil {
				t.Fatalf("%v, %s: %v", of, codec, err)
			}
			out := make([]byte, 2*64)
			if err := c.Gather(context.Background(), cache.Request{Rows: []int64{999, 0}, Out: out}); err != nil || !bytes.Equal(out[:64], data[999*64:]) || !bytes.Equal(out[64:], data[:64]) {
				t.Errorf("%v, %s: %v", of, codec, err)
			}
			if s, err := c.Stats(); err != nil || s.Tables[0].DType != of || codec == "zipnn" && s.Tables[0].StoredBytes >= s.Tables[0].RawBytes*9/10 {
				t.Errorf("%v, %s: %+v, %v", of, codec, s.Tables[0], err)
			}
			c.Close()
		}
	}
	for _, of := range []dtype.Type{dtype.Float16, dtype.Invalid, 99} {
		table := fromBytes(t, "t", data, 64)
		if _, err := table.WithDType(of); err == nil || !strings.HasPrefix(err.Error(), "cache: table t: element type (") {
			t.Errorf("%v: %v", of, err)
		}
	}
}

// TestTable_WithDTypeOfPages: pages keep the type that they were packed as.
func TestTable_WithDTypeOfPages(t *testing.T) {
	table, err := cache.FromPages(packed(t, versionedRows(3000, 64), 64, "none", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if _, err := table.WithDType(dtype.Uint8); err != nil {
		t.Error(err)
	}
	if _, err := table.WithDType(dtype.Float8E5M2); err == nil || !strings.HasSuffix(err.Error(), "element type (float8_e5m2) must be the uint8 that its pages were packed as") {
		t.Errorf("got %v", err)
	}
}

// TestNew_AutoHeedsTraining: if all rows are looked up equally often, the hit rate is the share of rows that fit, so CodecAuto compresses.
// If a few rows are hot, they fit uncompressed, so it does not.
func TestNew_AutoHeedsTraining(t *testing.T) {
	const rows, rowBytes = 2000, 512
	data := make([]byte, rows*rowBytes)
	for i := range rows { // a row number and zeros
		data[i*rowBytes], data[i*rowBytes+1] = byte(i), byte(i>>8)
	}
	for name, within := range map[string]int64{"alike": rows, "hot": 20} {
		r := rand.New(rand.NewPCG(3, 4))
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "t", data, rowBytes)}, Budget: 200_000, Devices: cache.DeviceOptions{Backend: "host"}, Link: cache.NoLink,
			Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) {
				for range 20 {
					batch := make([]int64, 500)
					for i := range batch {
						batch[i] = r.Int64N(within)
					}
					if !yield(0, batch) {
						return
					}
				}
			}},
		})
		choice := stats(t, c).Tables[0].Choice
		if !strings.Contains(choice.Basis, "of lookups by the training batches") {
			t.Errorf("%s: %s", name, choice.Basis)
		}
		for _, candidate := range choice.Candidates {
			if want := map[string]float64{"alike": 0.175, "hot": 1}[name]; candidate.Codec == "none" && math.Abs(candidate.HitRatio-want) > 0.03 {
				t.Errorf("%s: rows as they are promise %.3f of the lookups, want %.3f", name, candidate.HitRatio, want)
			}
			if candidate.Codec == "ibp4" && candidate.HitRatio < 0.99 {
				t.Errorf("%s: ibp4 promises %.3f of the lookups, want all", name, candidate.HitRatio)
			}
		}
	}
}

// wordsTable returns rows of float32 like bags of words that are normalised by row: row r has about most ÷ (1 + r ÷ 100) words, so rows with low
// numbers are longer when they are compressed.
func wordsTable(rows, rowBytes, most int, seed uint64) []byte {
	r, data := rand.New(rand.NewPCG(seed, 5)), make([]byte, rows*rowBytes)
	for i := range rows {
		n := max(2, int(float64(most)/(1+float64(i)/100)*(0.5+r.Float64())))
		for range n {
			at := i*rowBytes + 4*r.IntN(rowBytes/4)
			binary.LittleEndian.PutUint32(data[at:], math.Float32bits(1/float32(n)))
		}
	}
	return data
}

// TestNew_AutoForetellsHits: where hot rows are longer than others when compressed, fewer of them fit than rows of mean length would. What
// CodecAuto foretells of hits is what the cache then has, within 2 points in the mean of three draws of rows.
func TestNew_AutoForetellsHits(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes, batch, draws = 20_000, 1024, 2000, 3
	data := wordsTable(rows, rowBytes, 150, 1)
	for _, share := range race.Some([]float64{0.01, 0.05}) {
		off := 0.0
		for seed := range uint64(draws) {
			r := rand.New(rand.NewPCG(seed, uint64(share*100)))
			draw := func() []int64 { // by a power law: low numbers are hot
				ids := make([]int64, batch)
				for i := range ids {
					ids[i] = int64(rows * math.Pow(r.Float64(), 3))
				}
				return ids
			}
			c := newCache(t, cache.Options{
				Tables: []cache.Table{fromBytes(t, "words", data, rowBytes)}, Budget: int64(share * rows * rowBytes), Devices: cache.DeviceOptions{Backend: "host"}, Seed: seed + 1,
				Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) {
					for range 100 {
						if !yield(0, draw()) {
							return
						}
					}
				}},
			})
			out := make([]byte, batch*rowBytes)
			for range 50 {
				if err := c.Gather(ctx, cache.Request{Rows: draw(), Out: out}); err != nil {
					t.Fatal(err)
				}
			}
			of := stats(t, c).Tables[0]
			got, want := 0.0, float64(of.Hits)/float64(of.Lookups)
			for _, k := range of.Choice.Candidates {
				if k.Codec == of.Codec {
					got = k.HitRatio
				}
			}
			t.Logf("budget %.0f %%: %s foretells %.3f, %.3f hit; rows are stored in %d of %d bytes", 100*share, of.Codec, got, want, of.StoredBytes/rows, rowBytes)
			if of.StoredBytes*2 > of.RawBytes {
				t.Fatalf("%s hardly shrinks the rows", of.Codec)
			}
			off += (got - want) / draws
		}
		if math.Abs(off) > 0.02 {
			t.Errorf("budget %.0f %%: the hit ratio that is foretold is too high by %.3f in the mean", 100*share, off)
		}
	}
}

// TestUpdate_OtherDistribution: rows that differ from those that the codec was trained on are returned unchanged, and Stats shows that
// they compress less.
func TestUpdate_OtherDistribution(t *testing.T) {
	const rows, rowBytes = 500, 64
	for _, codec := range []cache.Backend{"auto", "ibp4", "ibpc"} {
		c, err := cache.New(cache.Options{Tables: []cache.Table{fromBytes(t, "t", make([]byte, rows*rowBytes), rowBytes)}, Budget: 1 << 15, Devices: cache.DeviceOptions{Backend: "host"}, Codec: cache.Codec(codec)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		before, err := c.Stats()
		if err != nil {
			t.Fatal(err)
		}
		numbers, noise := make([]int64, rows), make([]byte, rows*rowBytes)
		for i := range numbers {
			numbers[i] = int64(i)
		}
		rand.NewChaCha8([32]byte{7}).Read(noise)
		if err := c.Update(context.Background(), 0, numbers, noise); err != nil {
			t.Fatal(err)
		}
		out := make([]byte, len(noise))
		if err := c.Gather(context.Background(), cache.Request{Rows: numbers, Out: out}); err != nil || !bytes.Equal(out, noise) {
			t.Fatalf("%s: rows differ from what was written, %v", codec, err)
		}
		after := before
		for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if after, err = c.Stats(); err != nil {
				t.Fatal(err)
			}
			if after.OverlayRows == 0 {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("%s: %d rows have not reached the host tier", codec, after.OverlayRows)
			}
		}
		ratio := func(s cache.Stats) float64 { return float64(s.Tables[0].RawBytes) / float64(s.Tables[0].StoredBytes) }
		trained := after.Tables[0].TrainedRatio
		if trained != ratio(before) || trained < 4 || ratio(after) > 1.01 {
			t.Errorf("%s: trained ratio %.2f, at first %.2f, now %.2f", codec, trained, ratio(before), ratio(after))
		}
	}
}
