package transfer

import (
	"slices"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// NodeMemory is where the memory of a tier's rows lies.
type NodeMemory struct {
	// Held are the bytes on each memory node of the host, found by looking at up to 1,024 pages when the rows had been laid; nil where
	// no nodes were named, or the system does not say.
	Held []numa.Held
	// Refused says why the rows do not lie on the nodes that were named; nil where they do.
	Refused error
}

// Nodes returns where the rows lie.
func (t *Tier) Nodes() NodeMemory {
	t.writes.RLock()
	defer t.writes.RUnlock()
	return NodeMemory{slices.Clone(t.lies.Held), t.lies.Refused}
}

// allocRows allocates memory for rows, on the tier's nodes if they can be had.
func (t *Tier) allocRows(bytes int64) (device.Buffer, error) {
	b, refused, err := device.AllocHostOn(t.home, t.nodes, bytes, "host tier")
	if err == nil {
		t.lies = NodeMemory{Refused: refused}
	}
	return b, err
}

// look finds out where the rows lie, now that they have been written.
func (t *Tier) look() {
	if len(t.nodes) == 0 || t.lies.Refused != nil {
		return
	}
	t.lies.Held, _ = numa.Where(t.host.Mem.Bytes())
}
