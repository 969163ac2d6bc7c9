package transfer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// noded is a device whose AllocHostOn is the host's Alloc, and remembers what was to lie where.
type noded struct {
	device.Device
	refuse error

	mu   sync.Mutex
	laid []string
}

func (d *noded) AllocHostOn(nodes []int, bytes int64, what string) (device.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.laid = append(d.laid, fmt.Sprintf("%s on %v", what, nodes))
	if d.refuse != nil {
		return device.Buffer{}, d.refuse
	}
	return d.Device.Alloc(bytes, what)
}

// onNode returns a node of this machine, or skips the test where the system lays no memory.
func onNode(t *testing.T) int {
	t.Helper()
	machine, err := numa.Read("/")
	if err != nil || len(machine.Usable()) == 0 {
		t.Skipf("this machine's memory nodes are not known: %v", err)
	}
	m, err := numa.Alloc(1, machine.Usable()[:1])
	if err != nil {
		t.Skip(err)
	}
	m.Free()
	return machine.Usable()[0]
}

// TestTier_OnNodes: rows lie on the node that was named, packed, packed anew or in place; of the room behind them, nothing lies anywhere
// yet.
func TestTier_OnNodes(t *testing.T) {
	node := onNode(t)
	data := rowsOf(3000, 100, 1)
	for _, mode := range []Mode{InPlace, Packed} {
		for _, codec := range []string{"none", "ibp4"} {
			tier := load(t, data, 100, Options{Codec: codec, Mode: mode, Nodes: []int{node}, Workers: 2})
			checkRows(t, tier, data)
			check := func() {
				t.Helper()
				lies, sum := tier.Nodes(), int64(0)
				for _, h := range lies.Held {
					sum += h.Bytes
				}
				if bytes := tier.HostBytes(); lies.Refused != nil || len(lies.Held) > 0 && (sum < bytes*9/10 || sum > bytes) {
					t.Errorf("%v, %s: %+v, of %d bytes", mode, codec, lies, tier.HostBytes())
				}
				if len(lies.Held) == 0 {
					t.Logf("the system does not say where memory lies")
				}
			}
			check()
			if mode == Packed {
				old, err := tier.Repack()
				if err != nil {
					t.Fatal(err)
				}
				tier.home.Free(old.Mem)
				tier.home.Free(old.Index)
				checkRows(t, tier, data)
				check()
			}
		}
	}
}

// TestTier_NodesRefused: a table is loaded all the same, and says why it lies anywhere.
func TestTier_NodesRefused(t *testing.T) {
	data := rowsOf(500, 64, 1)
	refused := errors.New("operation not permitted")
	for _, d := range []device.Device{&noded{Device: newDevice(), refuse: refused}, struct{ device.Device }{newDevice()}} {
		for _, mode := range []Mode{InPlace, Packed} {
			tier, err := Load(d, SourceOf(data, 64), Options{Codec: "ibp4", Mode: mode, Nodes: []int{1, 3}})
			if err != nil {
				t.Fatal(err)
			}
			checkRows(t, tier, data)
			lies := tier.Nodes()
			if n, ok := d.(*noded); ok {
				if lies.Refused != refused || n.laid[len(n.laid)-1] != "host tier on [1 3]" {
					t.Errorf("%+v, %v", lies, n.laid)
				}
			} else if lies.Refused == nil || lies.Refused.Error() != "device: the backend cannot place memory on nodes" {
				t.Errorf("%+v", lies)
			}
			if lies.Held != nil {
				t.Errorf("%+v", lies)
			}
			tier.Close()
		}
	}
}

// TestTier_NoNodes: a tier without nodes asks for none.
func TestTier_NoNodes(t *testing.T) {
	d := &noded{Device: newDevice()}
	tier, err := Load(d, SourceOf(rowsOf(500, 64, 1), 64), Options{Codec: "ibp4", Mode: Packed})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	if lies := tier.Nodes(); lies.Held != nil || lies.Refused != nil || d.laid != nil {
		t.Errorf("%+v, %v", lies, d.laid)
	}
}

// TestSharer_NearItsDevice: staging lies on the device's node, the workers but the first keep to its processors, and the rows are the
// same.
func TestSharer_NearItsDevice(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		all := make([]int, 256)
		for i := range all {
			all[i] = i
		}
		on := &noded{Device: d}
		if d.Info().Kind != "host" {
			on = nil
		} else {
			d = on
		}
		for attempt := 0; ; attempt++ {
			s := newSharing(t, d, 3000, 256, InPlace, "ibp4", ShareOptions{Threads: 2, Piece: 8, Unit: 4, StageBytes: 1 << 20, Timeout: time.Second, Nodes: []int{0}, CPUs: all})
			r, plan := rand.New(rand.NewPCG(1, 1)), new(Plan)
			for range 20 {
				if err := s.gather(plan, s.random(1000, r)); err != nil {
					t.Fatal(err)
				}
			}
			s.sharer.stop()
			if on != nil && (len(on.laid) < 3 || slices.ContainsFunc(on.laid, func(what string) bool { return what != "staging of misses on [0]" })) {
				t.Errorf("%v", on.laid)
			}
			s.sharer.done = make(chan struct{}) // Close stops it again
			n := s.sharer.kept.Load()
			if n == 1 {
				return
			}
			if n != 0 {
				t.Fatalf("%d workers are kept, and the first is not to be", n)
			}
			if attempt == 20 { // the process's first thread, and where there is one processor, are left alone
				t.Skip("no worker could be kept")
			}
		}
	})
}
