package transfer

import (
	"slices"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// NodeMemory says on which memory nodes of the host a tier's rows are.
type NodeMemory struct {
	// Held has the bytes on each memory node, estimated from up to 1,024 pages after the rows were written. It is nil
	// if no nodes were named or the system does not report them.
	Held []numa.Held
	// Refused says why the rows are not on the named nodes. It is nil if they are.
	Refused error
}

// Nodes returns the memory nodes of the rows.
func (t *Tier) Nodes() NodeMemory {
	t.writes.RLock()
	defer t.writes.RUnlock()
	return NodeMemory{slices.Clone(t.lies.Held), t.lies.Refused}
}

// allocRows allocates memory for rows, on the tier's nodes if possible.
func (t *Tier) allocRows(bytes int64) (device.Buffer, error) {
	if t.keep != nil && t.shared {
		return t.keep.Folder.Alloc(t.home, t.keep.role(rowsRole), bytes, "host tier")
	}
	b, refused, err := device.AllocHost(t.home, t.shared, t.nodes, bytes, "host tier")
	if err == nil {
		t.lies = NodeMemory{Refused: refused}
	}
	return b, err
}

// allocHost allocates memory for what says where or in which form rows lie.
func (t *Tier) allocHost(role string, bytes int64, what string) (device.Buffer, error) {
	if t.keep != nil {
		return t.keep.Folder.Alloc(t.home, t.keep.role(role), bytes, what)
	}
	return t.home.AllocHost(bytes, what)
}

// look finds on which nodes the rows are, and sets t.lies. REQUIRES: the rows have been written.
func (t *Tier) look() {
	if len(t.nodes) == 0 || t.lies.Refused != nil {
		return
	}
	t.lies.Held, _ = numa.Where(t.host.Mem.Bytes())
}
