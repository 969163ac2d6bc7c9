package statjson

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
)

// TestOf_Keys pins the names that programs read, and that sums are those of the tables.
func TestOf_Keys(t *testing.T) {
	var tables []cache.Table
	for _, name := range []string{"a", "b"} {
		table, err := cache.FromSlice(name, make([]int32, 100*16), 16)
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	c, err := cache.New(cache.Options{Tables: tables, Budget: 4 << 10, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendHost},
		Refresh: cache.RefreshOptions{Accesses: 1, Keys: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for table := range 2 {
		if err := c.Gather(context.Background(), cache.Request{Table: table, Rows: []int64{0, 1, 99}, Out: make([]byte, 3*64)}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Of(c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	keys := func(m map[string]any) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }
	if got, want := keys(all), "codec codec_bytes compression_ratio devices errors estimate free_bytes gathers gpu_memory hit_ratio hits host_bytes host_bytes_moved host_taken_bytes index_bytes "+
		"load_peak_bytes lookups metadata_bytes misses misses_by_reason overlay_bytes payload_bytes peer_hits raw_bytes refresh restored_rows rows rows_cached rows_equal rows_uncompressed "+
		"scratch_bytes slots_saved staging_bytes stored_bytes tables unallocated_bytes updates"; got != want {
		t.Errorf("keys\n%s\nwant\n%s", got, want)
	}
	if got, want := keys(all["tables"].([]any)[0].(map[string]any)), "codec compression_ratio dtype gathers hit_ratio hits host_bytes_moved lookups misses misses_by_reason name "+
		"peer_hits raw_bytes row_bytes rows rows_cached rows_equal rows_uncompressed slots_saved stored_bytes"; got != want {
		t.Errorf("keys of a table\n%s\nwant\n%s", got, want)
	}
	if s.Lookups != 6 || s.Rows != 200 || s.Hits+s.Misses != 6 || s.CachedRows != s.Tables[0].CachedRows+s.Tables[1].CachedRows || s.RawBytes != 12800 {
		t.Errorf("%+v", s.Table)
	}
	e, err := Explain(c, 0, []int64{0, 99})
	if err != nil || len(e) != 2 || e[1].Row != 99 || e[0].Cached && e[0].Device == nil || !e[1].Cached && e[1].Reason == "" {
		t.Errorf("%+v, %v", e, err)
	}
}

var update = flag.Bool("update", false, "rewrite the golden file")

// fill gives every field of a value a value that its path determines, and slices two elements.
func fill(v reflect.Value, path string) {
	h := fnv.New32a()
	h.Write([]byte(path))
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type() != v.Field(i).Type() && v.Field(i).CanSet() && v.Type().Field(i).Name != "Machine" {
				fill(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), fmt.Sprint(path, i))
		}
	case reflect.String:
		v.SetString(path)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(h.Sum32()))
	case reflect.Float64:
		v.SetFloat(float64(h.Sum32()) / 64)
	}
}

// TestOf_Golden pins the JSON of statistics in which every number is another one.
func TestOf_Golden(t *testing.T) {
	table, err := cache.FromSlice("a", make([]int32, 100*16), 16)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 4 << 10, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all cache.Stats
	fill(reflect.ValueOf(&all).Elem(), "")
	all.Machine = new(all)
	got, err := json.MarshalIndent(of(c, &all), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/stats.golden"
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("JSON\n%s\nwant\n%s", got, want)
	}
}

// TestOf_HasEveryNumber: a counter or metric of the statistics is in the JSON, unless it is known to be left out, or there in another form.
func TestOf_HasEveryNumber(t *testing.T) {
	without := map[string]bool{
		"AdmittedAge": true, "RefusedRows": true, "CopiedRows": true, "LocalHits": true,
		"MissesByReason": true, "ReadNanos": true, "LogReads": true, "LogNanos": true, "Nanos": true, // by name, and as means
	}
	for from, to := range map[any][]any{
		cache.Stats{}.Changes:    {Refresh{}, Updates{}},
		cache.DeviceStats{}:      {Device{}},
		new(cache.Stats):         {Stats{}},
		new(cache.TableStats):    {Table{}},
		new(cache.TierStats):     {HostTier{}, ColdTier{}, Prefetch{}, Log{}},
		cache.StoreStats{}:       {Store{}},
		new(cache.ResidentStats): {Resident{}},
		cache.ResidentRange{}:    {ResidentRange{}},
	} {
		of := reflect.Indirect(reflect.ValueOf(from)).Type()
		for i := range of.NumField() {
			f := of.Field(i)
			if f.Tag.Get("kind") == "" || without[f.Name] {
				continue
			}
			if !slices.ContainsFunc(to, func(s any) bool { have, ok := reflect.TypeOf(s).FieldByName(f.Name); return ok && have.Type == f.Type }) {
				t.Errorf("%v.%s is in none of %T", of, f.Name, to)
			}
		}
	}
}
