package cache_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
)

// embeddings returns a small table: 1000 rows of 16 values that differ in a few bits only.
func embeddings() cache.Table {
	const rows, columns = 1000, 16
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = 1 + float32(i%257)/1024
	}
	table, err := cache.FromSlice("embeddings", values, columns)
	if err != nil {
		log.Fatal(err)
	}
	return table
}

// Make a cache of a small table in memory, gather rows, read its statistics, and close it.
func Example() {
	c, err := cache.New(cache.Options{
		Tables:    []cache.Table{embeddings()},
		GPUMemory: 16 << 10, // bytes for each device; the table has 64000
		// Learn from one batch which rows are worth caching.
		Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: func(yield func(table int, rows []int64) bool) {
			yield(0, []int64{7, 8, 9, 7})
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	rows := []int64{7, 999, 8, 7} // in any order, duplicates allowed
	out := make([]float32, len(rows)*16)
	if err := c.Gather(context.Background(), cache.Request{Rows: rows, Out: cache.AsBytes(out)}); err != nil {
		log.Fatal(err)
	}
	for i, r := range rows {
		fmt.Println("row", r, "begins with", out[i*16:][:3])
	}

	s, err := c.Stats()
	if err != nil {
		log.Fatal(err)
	}
	t := s.Tables[0]
	fmt.Printf("%s: %d lookups, %d hits, %d misses\n", t.Name, t.Lookups, t.Hits, t.Misses)
	fmt.Println("within the budget:", s.MetadataBytes+s.PayloadBytes <= s.BudgetBytes)
	fmt.Println("compressed:", t.StoredBytes < t.RawBytes)
	// Output:
	// row 7 begins with [1.109375 1.1103516 1.1113281]
	// row 999 begins with [1.0488281 1.0498047 1.0507812]
	// row 8 begins with [1.125 1.1259766 1.1269531]
	// row 7 begins with [1.109375 1.1103516 1.1113281]
	// embeddings: 4 lookups, 3 hits, 1 misses
	// within the budget: true
	// compressed: true
}

// Gather the next batch while the current one is used.
func ExampleCache_GatherAsync() {
	c, err := cache.New(cache.Options{Tables: []cache.Table{embeddings()}, GPUMemory: 16 << 10})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ctx := context.Background()
	batches := [][]int64{{1, 2, 3}, {500, 2}, {999}}
	var out [2][]float32 // one is written while the other is read
	gather := func(i int) *cache.Pending {
		out[i%2] = make([]float32, len(batches[i])*16)
		return c.GatherAsync(ctx, cache.Request{Rows: batches[i], Out: cache.AsBytes(out[i%2])})
	}
	next := gather(0)
	for i, rows := range batches {
		pending := next
		if i+1 < len(batches) {
			next = gather(i + 1)
		}
		if err := pending.Wait(); err != nil {
			log.Fatal(err)
		}
		sum := float32(0)
		for _, x := range out[i%2] {
			sum += x
		}
		fmt.Println(len(rows), "rows, mean", sum/float32(len(out[i%2])))
	}
	// Output:
	// 3 rows, mean 1.0385742
	// 2 rows, mean 1.0390625
	// 1 rows, mean 1.0561523
}

// A cache that begins empty, learns from accesses, and is updated while it serves.
func Example_online() {
	c, err := cache.New(cache.Options{
		Tables:    []cache.Table{embeddings().WithCapacity(2000)}, // room for 1000 more rows
		GPUMemory: 16 << 10,
		Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Cold: true},

		// Every access is observed; a service would have an Interval, and a share of them.
		Refresh: cache.RefreshOptions{Accesses: 1},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ctx := context.Background()
	out := make([]float32, 2*16)
	hits := func() int64 {
		if err := c.Gather(ctx, cache.Request{Rows: []int64{7, 8}, Out: cache.AsBytes(out)}); err != nil {
			log.Fatal(err)
		}
		s, err := c.Stats()
		if err != nil {
			log.Fatal(err)
		}
		return s.Tables[0].Hits
	}
	fmt.Println("hits of an empty cache:", hits())
	if err := c.Refresh(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("after a refresh:", hits())

	row := make([]float32, 16)
	row[0] = 42
	for _, id := range []int64{7, 1000} { // one that is there, a new one
		if err := c.Update(ctx, 0, []int64{id}, cache.AsBytes(row)); err != nil {
			log.Fatal(err)
		}
	}
	hits()
	fmt.Println("row 7 begins with", out[0], "and there are", c.Rows(0), "rows")
	// Output:
	// hits of an empty cache: 0
	// after a refresh: 2
	// row 7 begins with 42 and there are 1001 rows
}
