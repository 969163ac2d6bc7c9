//go:build cuda && linux

package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gorgonia.org/cu"

	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// Driver returns the version of CUDA that the driver supports.
func Driver() string {
	v := driver.Version()
	return fmt.Sprintf("CUDA %d.%d", v/1000, v%1000/10)
}

// List returns all GPUs, or an error that says why none is usable. It retains and releases the primary context of each.
func List() ([]GPU, error) { return each(describe) }

// Seen returns Index, Name and PCIBusID of all GPUs that this process sees. It opens none, so one that has failed is among them.
func Seen() ([]GPU, error) {
	return each(func(g *GPU, d driver.Device, _ []driver.Device) error { return name(g, d) })
}

// each returns all GPUs, with what fill sets of each, given all.
func each(fill func(g *GPU, d driver.Device, all []driver.Device) error) ([]GPU, error) {
	if err := Usable(); err != nil {
		return nil, err
	}
	devices, err := driver.Devices()
	if err != nil {
		return nil, err
	}
	gpus := make([]GPU, len(devices))
	for i, d := range devices {
		if err := fill(&gpus[i], d, devices); err != nil {
			return nil, err
		}
	}
	return gpus, nil
}

// name sets what a GPU is told by.
func name(g *GPU, d driver.Device) (err error) {
	g.Index = d.Ordinal()
	if g.Name, err = d.Name(); err != nil {
		return err
	}
	g.PCIBusID, err = d.PCIBusID()
	return err
}

func describe(g *GPU, d driver.Device, all []driver.Device) (err error) {
	g.Peers, g.Atomics = []int{}, []int{}
	if err := name(g, d); err != nil {
		return err
	}
	g.HostLink = hostLink(g.PCIBusID)
	if g.Node, err = numa.PCINode("/", g.PCIBusID); err != nil {
		g.Node = numa.Unknown
	}
	major, minor, err := d.ComputeCapability()
	if err != nil {
		return err
	}
	g.ComputeCapability = fmt.Sprintf("%d.%d", major, minor)
	ctx, err := d.Retain()
	if err != nil {
		return err
	}
	defer ctx.Release()
	if g.FreeBytes, g.MemoryBytes, err = ctx.MemInfo(); err != nil {
		return err
	}
	for _, peer := range all {
		if peer.Ordinal() == d.Ordinal() {
			continue
		}
		can, err := d.CanAccessPeer(peer)
		if err != nil {
			return err
		}
		if !can {
			continue
		}
		g.Peers = append(g.Peers, peer.Ordinal())
		atomics, err := d.Link(cu.P2PNativeAomicSupported, peer)
		if err != nil {
			return err
		}
		if atomics != 0 {
			g.Atomics = append(g.Atomics, peer.Ordinal())
		}
	}
	return nil
}

// hostLink returns the PCIe link of a device as Linux reports it, or "".
func hostLink(bus string) string {
	dir := filepath.Join("/sys/bus/pci/devices", strings.ToLower(bus))
	speed, err := os.ReadFile(filepath.Join(dir, "current_link_speed"))
	if err != nil {
		return ""
	}
	width, err := os.ReadFile(filepath.Join(dir, "current_link_width"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(speed)) + " x" + strings.TrimSpace(string(width))
}
