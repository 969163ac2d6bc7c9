//go:build cuda && linux

package serve_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/serve"
)

// TestGPUs_AttachedRate measures two clients, each on a GPU of its own, that read rows of the slabs of both: beside one process that reads on both GPUs, and
// beside each client alone. The processes have one host tier.
func TestGPUs_AttachedRate(t *testing.T) {
	if !gputest.Two(t) {
		return
	}
	rows, batch, repeats, lasts := gputest.Few(2_000_000, 4000), gputest.Few(200_000, 1000), gputest.Few(50, 2), 0.5
	if testing.Short() {
		lasts = 0
	}
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{rateTable(t, rows)}, Budget: int64(rows) * rateRowBytes / 6, Codec: "ibp4", Shared: true,
		Devices: cache.DeviceOptions{Backend: cache.BackendCUDA, Count: 2, Placement: cache.PlacementPartition}, Host: cache.HostOptions{NoEqualRows: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := listen(t, c, serve.Options{})
	var own [2]*meter
	var clients [2]*child
	for gpu := range 2 {
		if own[gpu], err = newMeter(c, gpu, rows, batch); err != nil {
			t.Fatal(err)
		}
		defer own[gpu].close()
		clients[gpu] = start(t, "measure", s.Address(), strconv.Itoa(gpu), strconv.Itoa(rows), strconv.Itoa(batch), strconv.Itoa(repeats))
		clients[gpu].line() // it is attached
	}
	askFor := func(clients []*child, kind int) (sum float64) {
		for _, c := range clients {
			c.say(fmt.Sprintf("kind %d %g", kind, lasts))
		}
		for _, c := range clients {
			var one float64
			if err := json.Unmarshal([]byte(c.line()), &one); err != nil {
				t.Fatal(err)
			}
			sum += one
		}
		return sum
	}
	inOwner := func(kind int) float64 {
		var wg sync.WaitGroup
		var both [2]float64
		var failed [2]error
		for gpu, m := range own {
			wg.Go(func() { both[gpu], failed[gpu] = m.rateOf(kind, repeats, time.Duration(lasts*float64(time.Second))) })
		}
		wg.Wait()
		for _, err := range failed {
			if err != nil {
				t.Fatal(err)
			}
		}
		return both[0] + both[1]
	}
	for kind, what := range kinds {
		var owner, two, alone float64
		for range gputest.Few(3, 1) {
			owner, two = max(owner, inOwner(kind)), max(two, askFor(clients[:], kind))
			alone = max(alone, (askFor(clients[:1], kind)+askFor(clients[1:], kind))/2)
		}
		t.Logf("batches of %d rows of %d bytes, %s: one process on both GPUs %.1f M rows/s; two clients %.1f, ratio %.3f (the aim is 0.95); a client alone %.1f, of which two have %.3f times (the aim is 1.9)",
			batch, rateRowBytes, what, owner/1e6, two/1e6, two/owner, alone/1e6, two/alone)
		if !testing.Short() && two/owner < leastRatio {
			t.Errorf("%s: two clients have %.3f of the rate of one process, want at least %.2f", what, two/owner, leastRatio)
		}
	}
	all, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range all.Devices {
		if d.PeerHits == 0 || d.LocalHits == 0 {
			t.Errorf("device %d has read %d rows of its own slab and %d of the other's", i, d.LocalHits, d.PeerHits)
		}
	}
	sharedTier(t, int64(rows)*rateRowBytes, os.Getpid(), clients[0].cmd.Process.Pid, clients[1].cmd.Process.Pid)
}

// tierSizes are what a process has mapped of host tiers: resident pages, and its share of those that others have mapped too, in bytes.
type tierSizes struct{ resident, share int64 }

func tierOf(t *testing.T, pid int) (n tierSizes) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Logf("the system does not say which memory processes share: %v", err)
		return n
	}
	head, inside := regexp.MustCompile(`^[0-9a-f]+-[0-9a-f]+ `), false
	for line := range strings.Lines(string(text)) {
		if head.MatchString(line) {
			inside = strings.Contains(line, "memfd:tensorcache host tier")
			continue
		}
		for key, to := range map[string]*int64{"Rss:": &n.resident, "Pss:": &n.share} {
			if of, ok := strings.CutPrefix(line, key); ok && inside {
				var kib int64
				fmt.Sscan(of, &kib)
				*to += kib << 10
			}
		}
	}
	return n
}

// sharedTier checks that processes have one host tier together, of rows of so many bytes.
func sharedTier(t *testing.T, tier int64, pids ...int) {
	t.Helper()
	var shares, resident int64
	for _, pid := range pids {
		n := tierOf(t, pid)
		shares, resident = shares+n.share, resident+n.resident
	}
	t.Logf("%d processes have %.1f MiB of the host tier resident, and %.1f MiB together; its rows have %.1f MiB", len(pids), float64(resident)/(1<<20), float64(shares)/(1<<20), float64(tier)/(1<<20))
	if shares == 0 {
		return // not all systems say
	}
	if shares > tier+tier/10+1<<20 || resident <= shares {
		t.Errorf("the host tier is there more than once, or mapped by one process only")
	}
}
