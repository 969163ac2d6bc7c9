package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/redistest"
)

// A replica that did not hear of a new generation takes its master's place. The table is then the old generation, whole, because nobody deleted
// it before the replica knew that it is not the current one.
func TestDrop_WaitsForReplicas(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Replicas: 1, NodeTimeout: 30 * time.Second})
	old, fresh := rowsOf(1000, 61), rowsOf(2000, 62)
	load(t, c.URL(), "x", old, Options{})
	shard := int(slotOf(keys{"x"}.last())) * 3 / slots
	master, replica := c.Nodes[shard], c.Nodes[3+shard]
	o := Options{Table: "x", replicasWait: 200 * time.Millisecond, Logger: quiet(t)}
	replica.Pause()
	if _, err := master.Ask("CLIENT KILL TYPE replica"); err != nil { // else it would read later what was sent meanwhile
		t.Fatal(err)
	}
	load(t, c.URL(), "x", fresh, o)
	if err := dropOne(t, c.URL(), 1, o); !errors.Is(err, errInUse) || !strings.Contains(err.Error(), "replicas do not know yet") {
		t.Errorf("got %v", err)
	}
	master.Kill()
	replica.Resume()
	if _, err := replica.Ask("CLUSTER FAILOVER TAKEOVER"); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) { // until the others have heard of it
		slots, err := c.Nodes[(shard+1)%3].Ask("CLUSTER SLOTS")
		if err == nil && !strings.Contains(slots, master.ID) {
			break
		}
		if time.Since(begin) > patience {
			t.Fatal("the replica has not taken over")
		}
	}
	s, table := openTable(t, c.URL(), Options{Table: "x"})
	if g := s.Manifest().Generation; g != 1 {
		t.Fatalf("generation %d: the replica knew it", g)
	}
	allRows(t, table, old)
	// Loading goes on from there.
	load(t, c.URL(), "x", fresh, Options{})
	_, table = openTable(t, c.URL(), Options{Table: "x"})
	allRows(t, table, fresh)
}

// Slots of control keys are those of the table's name.
func TestSlotOf_ControlKeys(t *testing.T) {
	t.Parallel()
	k := keys{"features"}
	names := []string{k.manifest(), k.generations(), k.last(), k.leases(3), k.lease(3, "reader{1}"), k.loader(3)}
	if i := slices.IndexFunc(names, func(name string) bool { return slotOf(name) != slotOf("features") }); i >= 0 {
		t.Errorf("%s is in slot %d, must %d", names[i], slotOf(names[i]), slotOf("features"))
	}
}
