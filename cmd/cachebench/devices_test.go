package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// TestDevices_DeclaredRates: what devices --declare prints, run --rates reads.
func TestDevices_DeclaredRates(t *testing.T) {
	t.Parallel()
	out := succeed(t, "devices", "--declare", "local=100,peer=0.1,host=90,overhead=7,row=0.1,beside=0.5,same=15")
	refuse(t, "--batch and --declare contradict each other: what is declared is not measured", "devices", "--declare", "local=1,peer=1,host=1", "--batch", "9")
	refuse(t, "--batch means nothing without --measure", "devices", "--batch", "9")
	m := decode[placement.Measured](t, out)
	if (m.Rates != placement.Rates{Local: 100, Peer: 0.1, Host: 90}) || !m.Emulated {
		t.Fatalf("%+v", m)
	}
	path := filepath.Join(t.TempDir(), "rates.json")
	if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"run", "--json", "--device", "host", "--devices", "2"}, small...)
	r := decode[experiment.Result](t, succeed(t, append(args, "--rates", path)...))
	if p := r.Placement; p.RowNanos <= 0 || p.RowNanos >= p.PartitionNanos || !strings.Contains(p.Why, "copied") {
		t.Errorf("%+v", p)
	}
	// The other way round, nothing is copied.
	r = decode[experiment.Result](t, succeed(t, append(args, "--rates", "local=100,peer=90,host=0.1")...))
	if p := r.Placement; p.HotBytes != 0 || p.CopiedRows != 0 || !strings.Contains(p.Why, "partitioned") || p.ReplicateNanos <= p.RowNanos {
		t.Errorf("%+v", p)
	}
}

// TestRun_HostNodes: the host tier lies on the nodes that are named, and the output says so; without them it says nothing of one node.
func TestRun_HostNodes(t *testing.T) {
	t.Parallel()
	args := append([]string{"run", "--device", "host", "--verify"}, small...)
	r := decode[experiment.Result](t, succeed(t, append(args, "--json", "--host-nodes", "any")...))
	if h := r.HostMemory; h == nil || h.Nodes != nil || h.Held != nil || h.Why != "as Options.Host.Nodes says" {
		t.Errorf("%+v", h)
	}
	if out := succeed(t, append(args, "--host-nodes", "any")...); !strings.Contains(out, "host nodes wherever the system puts it: as Options.Host.Nodes says\n") {
		t.Error(out)
	}
	machine, err := numa.Read("/")
	if err != nil || len(machine.Usable()) == 0 {
		t.Skipf("this machine's memory nodes are not known: %v", err)
	}
	node := fmt.Sprint(machine.Usable()[0])
	if out := succeed(t, append(args, "--json", "--host-nodes", node)...); !strings.Contains(out, `"host_memory": {`) || decode[experiment.Result](t, out).Mismatches != 0 {
		t.Error(out)
	}
	if out := succeed(t, args...); len(machine.Usable()) == 1 && strings.Contains(out, "host nodes") {
		t.Error(out)
	}
}
