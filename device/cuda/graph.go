//go:build cuda && linux

package cuda

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
)

// Graph is work that a stream has captured and that can be launched again and again.
type Graph struct {
	device *Device
	graph  *driver.Graph
}

// Capture runs f while the stream captures what is enqueued on it, and returns that. If global is set, calls of CUDA that a capture forbids by
// default, such as allocations by any thread of the process, make it fail; else none does.
func (s *Stream) Capture(global bool, f func() error) (*Graph, error) {
	if s.sequence != nil {
		return nil, fmt.Errorf("cuda: a sequence's stream must not capture a graph")
	}
	g, err := s.stream.Capture(global, f)
	if err != nil {
		return nil, s.device.note(err)
	}
	return &Graph{s.device, g}, nil
}

// Launch enqueues a replay on a stream of the same device. Replays of one graph run one after the other, on whatever streams.
func (g *Graph) Launch(s *Stream) error { return g.device.note(g.graph.Launch(s.stream)) }

// Close destroys the graph. Replays that are enqueued still run.
func (g *Graph) Close() { g.device.note(g.graph.Destroy()) }

// HoldCapture implements device.Capturer.
func (s *Stream) HoldCapture() (device.Hold, error) {
	h, err := s.stream.Hold()
	if err != nil {
		return nil, s.device.note(err)
	}
	return h, nil
}
