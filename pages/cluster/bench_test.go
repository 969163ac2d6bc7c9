package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/redistest"
	"github.com/tensorcache/tensorcache/pages"
)

// BenchmarkStore_BesideValkeyGo reads the same pages from three masters by ReadPages and by valkey-go alone: DoMulti of a GET for each page.
// The two take turns, and each value is a median of the turns: MB/s of both, and how many times as fast as valkey-go the store is.
func BenchmarkStore_BesideValkeyGo(b *testing.B) { beside(b, redistest.Options{}, 1) }

// BenchmarkStore_BesideMGET is the same with one server, from which valkey-go alone reads by MGET of 8 pages at once.
func BenchmarkStore_BesideMGET(b *testing.B) { beside(b, redistest.Options{Masters: -1}, 8) }

func beside(b *testing.B, servers redistest.Options, keys int) {
	c := redistest.Start(b, servers)
	for _, pageBytes := range []int{64 << 10, 256 << 10, 1 << 20} {
		name := fmt.Sprintf("p%d", pageBytes)
		w, err := NewWriter(b.Context(), c.URL(), Options{Table: name})
		if err != nil {
			b.Fatal(err)
		}
		if _, err = pages.Pack(b.Context(), func() (pages.Source, error) { return &rowsSource{data: rowsOf(192<<20/testRowBytes, 1)}, nil }, w,
			pages.PackOptions{Name: name, DType: dtype.Uint8, Codec: "none", Stage: "none", PageBytes: pageBytes, Workers: 1}); err != nil {
			b.Fatal(err)
		}
		for _, callers := range []int{1, 4} {
			b.Run(fmt.Sprintf("page=%dKiB/callers=%d", pageBytes>>10, callers), func(b *testing.B) { besideValkeyGo(b, c, name, callers, keys) })
		}
		if err := dropAll(b.Context(), c.URL(), name); err != nil {
			b.Fatal(err)
		}
	}
}

// dropAll takes a table away, for room.
func dropAll(ctx context.Context, url, table string) error {
	c, err := administer(ctx, url, Options{Table: table})
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.client.Do(ctx, c.client.B().Del().Key(c.manifest()).Build()).Error(); err != nil {
		return err
	}
	_, err = c.dropOld(ctx)
	return err
}

func besideValkeyGo(b *testing.B, c *redistest.Cluster, name string, callers, keys int) {
	ctx := b.Context()
	s, err := Open(ctx, c.URL(), Options{Table: name})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr)
	}
	plain, err := valkey.NewClient(valkey.ClientOption{InitAddress: addrs, DisableCache: true})
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	m := s.Manifest()
	batchPages := min(64<<20/callers/m.LongestPage, 128, int(m.Pages))
	byStore := func(r *rand.Rand, into [][]byte) int {
		numbers, bytes := pick(r, m, batchPages), 0
		var mu sync.Mutex
		s.ReadPages(ctx, numbers, into, func(_ int, page []byte, err error) {
			if err != nil {
				b.Error(err)
			}
			mu.Lock()
			bytes += len(page)
			mu.Unlock()
		})
		return bytes
	}
	byClient := func(r *rand.Rand, _ [][]byte) int {
		var commands []valkey.Completed
		bytes := 0
		for some := range slices.Chunk(pick(r, m, batchPages), keys) {
			var names []string
			for _, page := range some {
				names = append(names, s.control.page(m.Generation, page))
			}
			if keys == 1 {
				commands = append(commands, plain.B().Get().Key(names[0]).Build())
			} else {
				commands = append(commands, plain.B().Mget().Key(names...).Build())
			}
		}
		for _, result := range plain.DoMulti(ctx, commands...) {
			texts := []valkey.ValkeyMessage{}
			if keys == 1 {
				text, err := result.ToMessage()
				if err != nil {
					b.Error(err)
				}
				texts = append(texts, text)
			} else if texts, err = result.ToArray(); err != nil {
				b.Error(err)
			}
			for _, m := range texts {
				text, err := m.ToString()
				if err != nil {
					b.Error(err)
				}
				bytes += len(text)
			}
		}
		return bytes
	}
	turn := func(seed uint64, read func(*rand.Rand, [][]byte) int) float64 {
		var wg sync.WaitGroup
		totals := make([]int, callers)
		begin := time.Now()
		for g := range callers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(g)))
				into := make([][]byte, batchPages)
				for i := range into {
					into[i] = make([]byte, m.BufferBytes())
				}
				for range 8 {
					totals[g] += read(r, into)
				}
			})
		}
		wg.Wait()
		total := 0
		for _, n := range totals {
			total += n
		}
		return float64(total) / time.Since(begin).Seconds()
	}
	var stores, clients, ratios []float64
	for n := uint64(0); b.Loop(); n++ {
		var store, client float64
		if n%2 == 0 {
			store = turn(n, byStore)
			client = turn(n, byClient)
		} else {
			client = turn(n, byClient)
			store = turn(n, byStore)
		}
		stores, clients, ratios = append(stores, store), append(clients, client), append(ratios, store/client)
	}
	b.ReportMetric(median(stores)/1e6, "store_MB/s")
	b.ReportMetric(median(clients)/1e6, "valkey-go_MB/s")
	b.ReportMetric(median(ratios), "×valkey-go")
	b.ReportMetric(0, "ns/op")
}

func pick(r *rand.Rand, m *pages.Manifest, n int) []uint32 {
	numbers := make([]uint32, n)
	for i := range numbers {
		numbers[i] = r.Uint32N(m.Pages)
	}
	return numbers
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
