package cache_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

// killedWriters is how many goroutines update in TestOpen_KilledWhileUpdating.
const killedWriters = 4

// killedUpdate is the rows that goroutine g of TestOpen_KilledWhileUpdating brings version k of. Every goroutine has rows of its own.
func killedUpdate(g int, k int64, rows int) []int64 {
	ids := make([]int64, 8)
	of := int64(rows / killedWriters)
	for i := range ids {
		ids[i] = int64(g)*of + (k*37+int64(i))%of
	}
	return ids
}

// TestOpen_KilledWhileUpdating: a process whose goroutines update and merge is killed at random moments. The next one finds every update that had returned, and of those
// that had not any part. Every other process has a durable log. The others' is not: what a process has written survives its end, if not the machine's.
func TestOpen_KilledWhileUpdating(t *testing.T) {
	const rows, rowBytes, variable = 3000, 120, "TENSORCACHE_TEST_UPDATED"
	if parts := strings.Split(os.Getenv(variable), "|"); len(parts) == 4 {
		pagesBackend = cache.Backend(parts[2])
		c := openDirectory(t, parts[0], parts[3] == "true")
		first, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for g := range killedWriters {
			all.Go(func() {
				for k := first; ; k++ {
					ids := killedUpdate(g, k, rows)
					data := make([]byte, len(ids)*rowBytes)
					for i, id := range ids {
						versioned(data[i*rowBytes:][:rowBytes], id, k)
					}
					if err := c.Update(ctx, 0, ids, data); err != nil {
						t.Error(err)
						return
					}
					fmt.Printf("updated %d %d\n", g, k) // in one write
					if k%5 == 0 && g == 0 {
						go c.MergeUpdates(ctx, 0)
					}
				}
			})
		}
		all.Wait()
		return
	}
	m := newModel(rows, rows, rowBytes)
	dir := packedFiles(t, m.source(), rowBytes)
	r := rand.New(rand.NewPCG(8, 8))
	updates, newest := 0, int64(0)
	rounds := 8
	if pagesBackend == cache.BackendCUDA {
		rounds = 3
	}
	for round := range rounds {
		first := newest + 2
		child := exec.Command(os.Args[0], "-test.run=^TestOpen_KilledWhileUpdating$")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d|%s|%v", variable, dir, first, pagesBackend, round%2 == 1))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		var last [killedWriters]int64
		for g := range last {
			last[g] = first - 1
		}
		before := updates
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			g, k := 0, int64(0)
			if _, err := fmt.Sscanf(lines.Text(), "updated %d %d", &g, &k); err != nil {
				continue
			}
			for _, id := range killedUpdate(g, k, rows) {
				m.begun[id].Store(k)
				m.done[id].Store(k)
			}
			last[g], newest = k, max(newest, k)
			if updates++; updates == before+1 { // the first one
				time.AfterFunc(time.Duration(r.IntN(60_000))*time.Microsecond, func() { child.Process.Kill() })
			}
		}
		child.Wait()
		if updates == before {
			t.Fatal("the process has updated nothing")
		}
		for g, k := range last {
			for _, id := range killedUpdate(g, k+1, rows) { // was under way
				m.begun[id].Store(k + 1)
			}
		}
		newest++
		c := openDirectory(t, dir, false)
		if err := m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, allOf(rows)); err != nil {
			t.Fatalf("round %d, killed after updates %d: %v", round, last, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d updates", updates)
}
