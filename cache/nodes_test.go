package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/internal/numa/numatest"
)

// attached are emulated devices with PCI addresses, for made-up machine descriptions.
type attached struct {
	refuse error

	mu   sync.Mutex
	laid map[string][]int // the nodes that host memory was to lie on, by what it is for
}

// openAttached makes caches on the host backend use devices with the PCI buses 1, 2, ... until the test ends.
func openAttached(t *testing.T, m numatest.Machine) *attached {
	a := &attached{laid: map[string][]int{}}
	cache.ReadMachineFrom(t, m.Write(t))
	cache.OpenHostWith(t, func(n, workers int) []device.Device {
		devices := host.Open(n, workers)
		for i, d := range devices {
			devices[i] = &attachedDevice{d, a, i}
		}
		return devices
	})
	return a
}

type attachedDevice struct {
	device.Device
	all *attached
	i   int
}

func (d *attachedDevice) Info() device.Info {
	info := d.Device.Info()
	info.Address = fmt.Sprintf("0000:%02x:00.0", d.i+1)
	return info
}

// AllocHostOn allocates on a node that the real machine has.
func (d *attachedDevice) AllocHostOn(nodes []int, bytes int64, what string) (device.Buffer, error) {
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	d.all.laid[what] = nodes
	if d.all.refuse != nil {
		return device.Buffer{}, d.all.refuse
	}
	machine, err := numa.Read("/")
	if err != nil || len(machine.Usable()) == 0 {
		return d.Device.AllocHost(bytes, what)
	}
	b, _, err := device.AllocHostOn(d.Device, machine.Usable()[:1], bytes, what)
	return b, err
}

// at returns a machine whose devices are at the given nodes.
func at(m numatest.Machine, nodes ...string) numatest.Machine {
	m.PCI = map[string]string{}
	for i, n := range nodes {
		m.PCI[fmt.Sprintf("0000:%02x:00.0", i+1)] = n
	}
	return m
}

// uneven is a machine of four nodes: 1 is offline, 2 has memory only, 4 none.
var uneven = numatest.Machine{Online: "0,2-4", Nodes: map[int]numatest.Node{
	0: {CPUs: "0-1", KiB: 100, Distances: "10 20 30 40"}, 2: {KiB: 100, Distances: "20 10 40 15"},
	3: {CPUs: "2-3", KiB: 100, Distances: "30 40 10 20"}, 4: {CPUs: "4", Distances: "40 15 20 10"},
}}

// TestHostNodes_Chosen: the nodes chosen for the host tier on several made-up machines. Every device returns right rows, also after updates.
func TestHostNodes_Chosen(t *testing.T) {
	one := numatest.Machine{Online: "0", Nodes: map[int]numatest.Node{0: {CPUs: "0-3", KiB: 100, Distances: "10"}}}
	allowed := at(numatest.Two(), "0", "1")
	allowed.Allowed = "1"
	garbage := at(numatest.Two(), "0", "1")
	garbage.Online = "all of them"
	for name, c := range map[string]struct {
		machine numatest.Machine
		asked   []int
		want    []int
		near    []int
		why     string
	}{
		"one node":           {at(one, "0", "0"), nil, nil, []int{0, 0}, ""},
		"nothing said":       {numatest.Machine{}, nil, nil, []int{-1, -1}, ""},
		"garbage":            {garbage, nil, nil, []int{0, 1}, ""},
		"all at one":         {at(numatest.Two(), "1", "1"), nil, []int{1}, []int{1, 1}, "nearest to every device"},
		"at both":            {at(numatest.Two(), "1", "0"), nil, []int{0, 1}, []int{1, 0}, "devices are near several: pages in turns"},
		"at one that is not": {at(numatest.Two(), "1", "-1"), nil, nil, []int{1, -1}, "the system does not say which node device 1 is near"},
		"at one that is odd": {at(numatest.Two(), "1", "first"), nil, nil, []int{1, -1}, "the system does not say which node device 1 is near"},
		"at no memory":       {at(uneven, "4", "3"), nil, []int{2, 3}, []int{4, 3}, "devices are near several: pages in turns"},
		"at an offline one":  {at(uneven, "3", "1"), nil, nil, []int{3, 1}, "the system does not say which node device 1 is near"},
		"one is allowed":     {allowed, nil, nil, []int{0, 1}, ""},
		"any node":           {at(numatest.Two(), "1", "1"), []int{cache.AnyNode}, nil, []int{1, 1}, "as Options.Host.Nodes says"},
		"named":              {at(numatest.Two(), "1", "1"), []int{1, 0}, []int{0, 1}, []int{1, 1}, "as Options.Host.Nodes says"},
		"named, one node":    {at(one, "-1", "-1"), []int{0}, []int{0}, []int{-1, -1}, "as Options.Host.Nodes says"},
	} {
		t.Run(name, func(t *testing.T) {
			a := openAttached(t, c.machine)
			data := noise(1000, 64, 1)
			o := cache.Options{
				Tables: []cache.Table{fromBytes(t, "x", slices.Clone(data), 64)}, Budget: 20_000, Devices: cache.DeviceOptions{Backend: "host", Count: 2}, Codec: "none", Host: cache.HostOptions{Tier: cache.Packed, Nodes: c.asked},
				Admission: cache.AdmissionOptions{Policy: admission.NewFrequency()},
			}
			served := newCache(t, o)
			s := stats(t, served)
			if h := s.HostMemory; !slices.Equal(h.Nodes, c.want) || h.Why != c.why || (len(h.Held) > 0) && c.want == nil {
				t.Errorf("%+v, want %v, %q", h, c.want, c.why)
			}
			for i, d := range s.Devices {
				if d.Node != c.near[i] {
					t.Errorf("device %d is at node %d, not %d", i, d.Node, c.near[i])
				}
			}
			if c.want == nil && len(a.laid) != 0 || c.want != nil && (!slices.Equal(a.laid["host tier"], c.want) || !slices.Equal(a.laid["overlay"], c.want)) {
				t.Errorf("laid: %v", a.laid)
			}
			for i := range 3 {
				for d := range 2 {
					rows, out := zipf(rand.New(rand.NewPCG(1, 1)), 1000, 500), make([]byte, 500*64)
					if err := served.On(d).Gather(ctx, cache.Request{Rows: rows, Out: out}); err != nil {
						t.Fatal(err)
					}
					checkRows(t, data, 64, rows, out)
				}
				fresh := noise(200, 64, uint64(i+2))
				rows := make([]int64, 200)
				for j := range rows {
					rows[j] = int64(j * 4)
					copy(data[j*4*64:][:64], fresh[j*64:])
				}
				if err := served.Update(ctx, 0, rows, fresh); err != nil {
					t.Fatal(err)
				}
			}
			settle(t, served)
			gatherAll(t, served, data)
		})
	}
}

// TestHostNodes_Refused: if the system refuses to place memory on nodes, that is logged once, and the cache works.
func TestHostNodes_Refused(t *testing.T) {
	a := openAttached(t, at(numatest.Two(), "0", "1"))
	a.refuse = fmt.Errorf("%w: memory (5 bytes) on nodes 0, 1: mbind: operation not permitted", numa.ErrRefused)
	var log bytes.Buffer
	data := noise(500, 64, 1)
	tables := []cache.Table{fromBytes(t, "x", data, 64), fromBytes(t, "y", data, 64)}
	c := newCache(t, cache.Options{
		Tables: tables, Budget: 20_000, Devices: cache.DeviceOptions{Backend: "host", Count: 2}, Codec: "none", Telemetry: cache.TelemetryOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))},
	})
	gatherAll(t, c, data)
	s := stats(t, c)
	if want := (cache.HostMemory{Why: a.refuse.Error()}); !reflect.DeepEqual(s.HostMemory, want) {
		t.Errorf("%+v", s.HostMemory)
	}
	if s.Devices[0].Node != 0 || s.Devices[1].Node != 1 {
		t.Errorf("%+v", s.Devices)
	}
	if n := strings.Count(log.String(), "host memory"); n != 1 || !strings.Contains(log.String(), `level=WARN msg="host memory not laid on nodes"`) ||
		!strings.Contains(log.String(), "operation not permitted") || !strings.Contains(log.String(), `nodes="[0 1]"`) {
		t.Errorf("%d lines:\n%s", n, &log)
	}
	if len(a.laid) != 1 { // what came after the first table was not tried
		t.Errorf("%v", a.laid)
	}
}

// TestHostNodes_Logged: the chosen nodes are logged with the reason, and so is an unreadable machine description. With one node nothing is
// logged.
func TestHostNodes_Logged(t *testing.T) {
	garbage := at(numatest.Two(), "0")
	garbage.Online = "0-"
	odd := at(numatest.Two(), "x")
	for want, m := range map[string]numatest.Machine{
		`level=INFO msg="host memory nodes chosen" cache=laid nodes=[1]`:         at(numatest.Two(), "1"),
		`level=WARN msg="memory nodes not known" cache=laid error="numa: `:       garbage,
		`level=WARN msg="memory node of a device not known" cache=laid device=0`: odd,
		"": {},
	} {
		openAttached(t, m)
		var log bytes.Buffer
		newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", noise(50, 64, 1), 64)}, Budget: 5000, Devices: cache.DeviceOptions{Backend: "host"}, Codec: "none",
			Telemetry: cache.TelemetryOptions{Name: "laid", Logger: slog.New(slog.NewTextHandler(&log, nil))},
		})
		if !strings.Contains(log.String(), want) || want == "" && strings.Contains(log.String(), "node") {
			t.Errorf("the log lacks %q:\n%s", want, &log)
		}
	}
}

// TestHostNodes_Bad: each fault is named, with its value and what it must be.
func TestHostNodes_Bad(t *testing.T) {
	for want, nodes := range map[string][]int{
		"cache: Host.Nodes (-2) must not be negative, but for AnyNode alone":                             {-2},
		"cache: Host.Nodes (-1) must not be negative, but for AnyNode alone":                             {0, -1},
		"cache: Host.Nodes (1) must not be named twice":                                                  {1, 0, 1},
		"cache: Host.Nodes (1) must be a node whose memory this process can have: 0, 2, 3":               {0, 1},
		"cache: Host.Nodes (4) must be a node whose memory this process can have: 0, 2, 3":               {4},
		"cache: Host.Nodes (0) must be a node whose memory this process can have: the system names none": {0},
	} {
		m := uneven
		if strings.HasSuffix(want, "none") {
			m = numatest.Machine{}
		}
		openAttached(t, m)
		c, err := cache.New(cache.Options{Tables: []cache.Table{fromBytes(t, "x", noise(50, 64, 1), 64)}, Budget: 5000, Devices: cache.DeviceOptions{Backend: "host"}, Host: cache.HostOptions{Nodes: nodes}})
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, cache.ErrOptions) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// TestHostNodes_ThisMachine: on a node of this machine, with real system calls, the rows of the host tier lie on that node, also after the
// tier was packed anew.
func TestHostNodes_ThisMachine(t *testing.T) {
	machine, err := numa.Read("/")
	if err != nil || len(machine.Usable()) == 0 {
		t.Skipf("this machine's memory nodes are not known: %v", err)
	}
	node := machine.Usable()[0]
	for _, mode := range []cache.HostTier{cache.InPlace, cache.Packed} {
		data := normalTable(4000, 32, 1)
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", slices.Clone(data), 128)}, Budget: 60_000, Devices: cache.DeviceOptions{Backend: "host", Count: 3}, Codec: "ibp4", Host: cache.HostOptions{Tier: mode, Nodes: []int{node}},
		})
		gatherAll(t, c, data)
		fresh := noise(1000, 128, 9) // longer than what they replace
		rows := make([]int64, 1000)
		for i := range rows {
			rows[i] = int64(i)
		}
		if err := c.Update(ctx, 0, rows, fresh); err != nil {
			t.Fatal(err)
		}
		copy(data, fresh)
		s := settle(t, c)
		gatherAll(t, c, data)
		h, sum := s.HostMemory, int64(0)
		if !slices.Equal(h.Nodes, []int{node}) {
			t.Skipf("%+v", h)
		}
		for _, held := range h.Held {
			sum += held.Bytes
			if len(machine.Usable()) == 1 && held.Node != node {
				t.Errorf("%+v", h)
			}
		}
		if len(h.Held) == 0 {
			t.Logf("the system does not say where memory lies")
		} else if sum > s.HostBytes || sum < s.HostBytes*9/10 {
			t.Errorf("%v: %+v, of %d bytes", mode, h, s.HostBytes)
		}
	}
}
