package safetensors

import (
	"path/filepath"
	"runtime"
	"testing"
)

// FuzzOpen: whatever the file says, a tensor that is opened lies in it, and opening takes no memory out of proportion to the file.
func FuzzOpen(f *testing.F) {
	a := entry("a", "F32", "[2,3]", 0, 24)
	f.Add(file(header(a), sequence(24)), "")
	f.Add(file(header(a, entry("b", "BF16", "[4,2,2]", 24, 56))+"  ", sequence(56)), "b")
	f.Add(file(header(`"__metadata__":{"format":"pt"}`, a, entry("c", "F4", "[1]", 24, 25)), sequence(25)), "a")
	f.Add(file(header(entry("e", "U8", "[0,1]", 0, 0), entry("a", "U8", "[4294967296,4294967296]", 0, 0)), nil), "a")
	f.Add(file(`{"a":{"dtype":"F32","shape":[[[[`, nil), "")
	f.Add([]byte(`{"metadata":{"total_size":5},"weight_map":{"a.1":"m-1.safetensors","a.10":"m-2.safetensors","a.2":"m-1.safetensors"}}`), "a.*")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		index := places{of: map[string]string{}}
		if index.parseIndex("folder", b) == nil {
			for name, in := range index.of {
				if filepath.Dir(in) != "folder" {
					t.Fatalf("tensor %q lies in %q", name, in)
				}
				index.names = append(index.names, name)
			}
			lists, err := index.lists(name)
			for _, list := range lists {
				if len(list) == 0 || err != nil || len(list) != len(lists[0]) {
					t.Fatalf("%q: %v, %v", name, lists, err)
				}
			}
		}
		for _, b := range [][]byte{b, file(string(b), sequence(24))} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := openBytes(b, name, 1)
			runtime.ReadMemStats(&after)
			if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+100*len(b)); got > limit {
				t.Fatalf("allocated %d bytes for a file of %d", got, len(b))
			}
			if err != nil {
				continue
			}
			if r.Rows() < 1 || r.RowBytes() < 1 || r.begin < prefixBytes || int64(r.Rows()) > (int64(len(b))-r.begin)/int64(r.RowBytes()) {
				t.Fatalf("%d rows of %d bytes from byte %d of a file of %d", r.Rows(), r.RowBytes(), r.begin, len(b))
			}
			elements := 1
			for _, n := range r.Shape() {
				elements *= n
			}
			if elements*r.DType().Size() != r.Rows()*r.RowBytes() {
				t.Fatalf("shape %v of %v is not %d rows of %d bytes", r.Shape(), r.DType(), r.Rows(), r.RowBytes())
			}
		}
	})
}
