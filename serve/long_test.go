//go:build linux && long

package serve_test

import (
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/serve"
)

// TestLong_ClientsKilled: 1,000 clients are killed in their batches.
func TestLong_ClientsKilled(t *testing.T) { killClients(t, 1000, "gather", func(*cache.Options) {}) }

// TestLong_OwnersTakenOver: 1,000 owners are killed at any moment, and the next one takes over what they leave.
func TestLong_OwnersTakenOver(t *testing.T) {
	t.Run("in place", func(t *testing.T) { killOwnerUpdating(t, cache.BackendHost, 500, cache.InPlace) })
	t.Run("packed", func(t *testing.T) { killOwnerUpdating(t, cache.BackendHost, 500, cache.Packed) })
}

// TestLong_Model: the model of several processes, ten times as long.
func TestLong_Model(t *testing.T) {
	for name, tier := range map[string]cache.HostTier{"in place": cache.InPlace, "packed": cache.Packed} {
		t.Run(name, func(t *testing.T) {
			runModel(t, func(o *cache.Options) { o.Host.Tier = tier }, "model", 3_000_000, modelBatch)
		})
	}
}

// TestLong_ClientsCome: for three minutes clients of the model come, gather, and are killed at any moment, while the owner, this process, changes what it
// can. Rows are versions that were current, counters are exact, and the owner does not grow.
func TestLong_ClientsCome(t *testing.T) {
	lasts := soakFor(t, 3*time.Minute)
	file := filepath.Join(t.TempDir(), "model")
	c, m := modelCache(t, file, func(o *cache.Options) { o.Host.Tier = cache.Packed })
	s := listen(t, c, serve.Options{StoppedAfter: time.Minute})
	stop := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		r, budget := rand.New(rand.NewPCG(5, 5)), int64(100<<10)
		for {
			select {
			case <-stop:
				failed <- nil
				return
			default:
			}
			err := m.gather(c, r)
			if err == nil {
				err = m.update(c, r)
			}
			if err == nil && r.IntN(50) == 0 {
				if budget < 1<<20 {
					budget += 1 << 10
				}
				err = setBudget(c, budget-int64(r.IntN(3))*10<<10)
			}
			if err != nil {
				failed <- err
				return
			}
			time.Sleep(200 * time.Microsecond)
		}
	}()
	before := footprintNow(t)
	r, kills := rand.New(rand.NewPCG(6, 6)), 0
	for end := time.Now().Add(lasts); time.Now().Before(end); kills++ {
		i := 1 + kills%(modelProcesses-1)
		// A client that were killed in an Update would leave rows whose versions are not known to be there.
		child := start(t, "model", s.Address(), file, strconv.Itoa(i), "1000000000", strconv.Itoa(modelBatch), "read")
		child.expect("attached")
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		child.kill()
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	before.Mapped += 2          // a budget may have brought a slab and a hashmap
	notGrown(t, before, 16<<20) // the packed host tier and the slab are shared memory
	all, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if one := all.Tables[0]; one.Lookups != one.Gathers*modelBatch {
		t.Errorf("%d lookups in %d Gathers of %d rows", one.Lookups, one.Gathers, modelBatch)
	}
	t.Logf("%d clients killed; %d rows looked up, %d updated", kills, all.Tables[0].Lookups, all.Changes.UpdatedRows)
}
