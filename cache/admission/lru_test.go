package admission

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

// TestLRU_Model compares with a list.
func TestLRU_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewLRU()
		problem := problem([]int64{100}, nil)
		places := rapid.IntRange(2, 50).Draw(t, "places")
		problem.Capacity = int64(places) * 112
		if err := p.Start(problem); err != nil {
			t.Fatal(err)
		}
		var list []uint64 // latest first
		for range rapid.IntRange(1, 20).Draw(t, "batches") {
			batch := rapid.SliceOfN(rapid.Int64Range(0, 99), 0, 100).Draw(t, "batch")
			p.Observe(0, batch)
			for _, row := range batch {
				k := key(0, row)
				if i := slices.Index(list, k); i >= 0 {
					list = slices.Delete(list, i, i+1)
				}
				list = slices.Insert(list, 0, k)
				list = list[:min(len(list), places)]
			}
			if got := slices.Collect(p.Rank()); !slices.Equal(got, list) {
				t.Fatalf("got %#x, want %#x", got, list)
			}
		}
	})
}

// TestRecency_Scan: one scan does not wash out rows that were accessed again and again, but for LRU.
func TestRecency_Scan(t *testing.T) {
	for name, stays := range map[string]bool{"lru": false, "glru-2q": true, "glru-arc": true} {
		p, _ := newPolicy(name, Inputs{})
		problem := problem([]int64{1000}, nil)
		problem.Capacity = 100 * 112
		start(t, p, problem)
		for range 3 {
			for row := range int64(40) {
				p.Observe(0, []int64{row})
			}
		}
		for row := range int64(500) {
			p.Observe(0, []int64{500 + row})
		}
		held := 0
		for k := range p.Rank() {
			if _, row := hashmap.SplitKey(k); row < 40 {
				held++
			}
		}
		if stays && held != 40 || !stays && held != 0 {
			t.Errorf("%s holds %d of 40 rows that were accessed three times before a scan", name, held)
		}
	}
}

// TestRecency_ReferenceMissRatios: as filled on demand, what the policies hold misses exactly as published for golang-lru's
// caches on a public trace (gli, from the LIRS paper).
func TestRecency_ReferenceMissRatios(t *testing.T) {
	race.SkipSequential(t)
	f, err := os.Open(realdata.Trace(t, "lirs_gli.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var trace []int64
	for lines := bufio.NewScanner(z); lines.Scan(); {
		if text := strings.TrimSpace(lines.Text()); text != "" && text != "*" {
			id, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			trace = append(trace, id)
		}
	}
	expected, err := os.Open(realdata.Trace(t, "EXPECTED.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer expected.Close()
	rows, err := csv.NewReader(expected).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"golang-lru/lru": "lru", "golang-lru/2q": "glru-2q", "golang-lru/arc": "glru-arc"}
	compared := 0
	for _, row := range rows {
		name, ok := names[row[1]]
		if row[0] != "gli" || !ok {
			continue
		}
		places, _ := strconv.ParseInt(row[2], 10, 64)
		one := func(uint64) int { return 1 }
		p, _ := newPolicy(name, Inputs{})
		start(t, p, Problem{Rows: []int64{slices.Max(trace) + 1}, Capacity: places, SlotBytes: one, StoredBytes: one})
		misses := 0
		for _, id := range trace {
			if !p.(*recency).keeper.Contains(key(0, id)) {
				misses++
			}
			p.Observe(0, []int64{id})
		}
		if got := fmt.Sprintf("%.9f", float64(misses)/float64(len(trace))); got != row[4] {
			t.Errorf("%s with %d places misses %s, want %s", name, places, got, row[4])
		}
		compared++
	}
	if compared < 9 {
		t.Errorf("%d figures were compared", compared)
	}
}
