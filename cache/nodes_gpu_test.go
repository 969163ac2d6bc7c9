package cache_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/internal/numa/numatest"
)

// TestGPU_HostNodes: host tier, overlay and staging lie on the node to which a made-up machine description attaches the GPU. Rows are right
// in Go memory and device memory, before and after updates, and Close frees all memory.
func TestGPU_HostNodes(t *testing.T) {
	gpu := gputest.Open(t)
	machine, err := numa.Read("/")
	if err != nil || len(machine.Usable()) == 0 || machine.Usable()[0] > 1 {
		t.Skipf("this machine's memory nodes are not known: %v", err)
	}
	node := machine.Usable()[0]
	if m, err := numa.Alloc(1, []int{node}); err != nil {
		t.Skip(err)
	} else {
		m.Free()
	}
	m := numatest.Two()
	m.PCI = map[string]string{gpu.Info().Address: string(rune('0' + node))}
	cache.ReadMachineFrom(t, m.Write(t))
	for _, mode := range []cache.HostTier{cache.InPlace, cache.Packed} {
		const rows, rowBytes = 2000, 256
		data := gputest.Rows("mixed", rows, rowBytes, 1)
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", slices.Clone(data), rowBytes)}, Budget: 100_000, Devices: cache.DeviceOptions{Backend: "cuda"}, Codec: "ibp4", Host: cache.HostOptions{Tier: mode},
			Admission: cache.AdmissionOptions{Policy: admission.NewFrequency()}, Seed: 1,
		})
		r := rand.New(rand.NewPCG(1, 1))
		check := func() {
			t.Helper()
			gatherAll(t, c, data)
			ids := zipf(r, rows, 1000)
			batch := putBatch(t, gpu, ids, rowBytes)
			p, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: batch.rows, DeviceOut: batch.out})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Wait(); err != nil {
				t.Fatal(err)
			}
			checkRows(t, data, rowBytes, ids, batch.read(t))
		}
		check()
		fresh := noise(300, rowBytes, 5)
		ids := make([]int64, 300)
		for i := range ids {
			ids[i] = int64(i * 5)
			copy(data[i*5*rowBytes:][:rowBytes], fresh[i*rowBytes:])
		}
		if err := c.Update(ctx, 0, ids, fresh); err != nil {
			t.Fatal(err)
		}
		check()
		s := settle(t, c)
		check()
		h, sum := s.HostMemory, int64(0)
		for _, held := range h.Held {
			sum += held.Bytes
			if len(machine.Usable()) == 1 && held.Node != node {
				t.Errorf("%+v", h)
			}
		}
		if !slices.Equal(h.Nodes, []int{node}) || h.Why != "nearest to every device" || s.Devices[0].Node != node {
			t.Errorf("%+v, device at %d", h, s.Devices[0].Node)
		}
		if len(h.Held) == 0 {
			t.Logf("the system does not say where memory lies")
		} else if sum > s.HostBytes || sum < s.HostBytes*9/10 {
			t.Errorf("%v: %+v, of %d bytes", mode, h, s.HostBytes)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGPU_HostNodesRefused: if the system refuses to place memory on a node, the driver allocates it, and the cache works.
func TestGPU_HostNodesRefused(t *testing.T) {
	gpu := gputest.Open(t)
	const missing = 900
	if m, err := numa.Alloc(1, []int{missing}); err == nil {
		m.Free()
		t.Skipf("this machine has a node %d", missing)
	}
	m := numatest.Machine{
		Online: "0,900", Nodes: map[int]numatest.Node{0: {CPUs: "0-1", KiB: 1 << 20, Distances: "10 20"}, missing: {CPUs: "2-3", KiB: 1 << 20, Distances: "20 10"}},
		PCI: map[string]string{gpu.Info().Address: "900"},
	}
	cache.ReadMachineFrom(t, m.Write(t))
	data := gputest.Rows("mixed", 1000, 256, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 256)}, Budget: 50_000, Devices: cache.DeviceOptions{Backend: "cuda"}, Codec: "ibp4", Seed: 1})
	gatherAll(t, c, data)
	s := stats(t, c)
	if h := s.HostMemory; h.Nodes != nil || h.Held != nil || !strings.Contains(h.Why, "refused by the system: memory (") || s.Devices[0].Node != missing {
		t.Errorf("%+v, device at %d", h, s.Devices[0].Node)
	}
}
