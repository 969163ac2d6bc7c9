package cache_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

// killedUpdate is the rows that update k of TestOpen_KilledWhileUpdating brings version k of.
func killedUpdate(k int64, rows int) []int64 {
	ids := make([]int64, 8)
	for i := range ids {
		ids[i] = (k*37 + int64(i)) % int64(rows)
	}
	return ids
}

// TestOpen_KilledWhileUpdating: a process that updates and merges is killed at random moments. The next one finds every update that had returned, and of the one
// that had not any part. The log is not durable: what a process has written survives its end, if not the machine's.
func TestOpen_KilledWhileUpdating(t *testing.T) {
	const rows, rowBytes, variable = 3000, 120, "TENSORCACHE_TEST_UPDATED"
	if dir, rest, ok := strings.Cut(os.Getenv(variable), "|"); ok {
		first, backend, _ := strings.Cut(rest, "|")
		pagesBackend = cache.Backend(backend)
		c := openDirectory(t, dir, false)
		k, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		for ; ; k++ {
			ids := killedUpdate(k, rows)
			data := make([]byte, len(ids)*rowBytes)
			for i, id := range ids {
				versioned(data[i*rowBytes:][:rowBytes], id, k)
			}
			if err := c.Update(ctx, 0, ids, data); err != nil {
				t.Fatal(err)
			}
			fmt.Println("updated", k)
			if k%5 == 0 {
				go c.MergeUpdates(ctx, 0)
			}
		}
	}
	m := newModel(rows, rows, rowBytes)
	dir := packedFiles(t, m.source(), rowBytes)
	r := rand.New(rand.NewPCG(8, 8))
	last := int64(0)
	rounds := 8
	if pagesBackend == cache.BackendCUDA {
		rounds = 3
	}
	for round := range rounds {
		child := exec.Command(os.Args[0], "-test.run=^TestOpen_KilledWhileUpdating$")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d|%s", variable, dir, last+2, pagesBackend))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		before := last
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			k := int64(0)
			if _, err := fmt.Sscanf(lines.Text(), "updated %d", &k); err != nil {
				continue
			}
			for _, id := range killedUpdate(k, rows) {
				m.begun[id].Store(k)
				m.done[id].Store(k)
			}
			if last = k; k == before+2 { // the first one
				time.AfterFunc(time.Duration(r.IntN(60_000))*time.Microsecond, func() { child.Process.Kill() })
			}
		}
		child.Wait()
		if last == before {
			t.Fatal("the process has updated nothing")
		}
		for _, id := range killedUpdate(last+1, rows) { // was under way
			m.begun[id].Store(last + 1)
		}
		c := openDirectory(t, dir, false)
		if err := m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, allOf(rows)); err != nil {
			t.Fatalf("round %d, killed after update %d: %v", round, last, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d updates", last)
}
