package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// TestDevices_DeclaredRates: what devices --measure --declare prints, run --rates reads.
func TestDevices_DeclaredRates(t *testing.T) {
	t.Parallel()
	out := succeed(t, "devices", "--measure", "--declare", "local=100,peer=0.1,host=90,overhead=7")
	m := decode[placement.Measured](t, out)
	if (m.Rates != placement.Rates{Local: 100, Peer: 0.1, Host: 90, Overhead: 7}) || !m.Emulated {
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
