package cache_test

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
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
		if err := c.Gather(context.Background(), i, []int64{1999, 0}, out); err != nil || !bytes.Equal(out, data[:64]) {
			t.Errorf("table %d: %q, %v", i, out, err)
		}
	}
	_, err = cache.New(cache.Options{Tables: []cache.Table{table().WithCodec("zip")}, Budget: 1 << 16, Devices: cache.DeviceOptions{Backend: "host"}})
	if err == nil || !strings.Contains(err.Error(), `cache: table t: codec: unknown codec ("zip")`) {
		t.Errorf("codec zip: %v", err)
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
		if err := c.Gather(context.Background(), 0, numbers, out); err != nil || !bytes.Equal(out, noise) {
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
