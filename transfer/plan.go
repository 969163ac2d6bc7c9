package transfer

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// Batch is what the misses of one Gather need: the scratch of its lookup and the output.
type Batch struct {
	Found, Scratch, Counters device.Buffer
	Out                      device.Buffer
}

// Plan enqueues the reads of a batch's misses on a stream. It keeps its kernels between batches, so that a batch
// allocates nothing; not safe for concurrent use.
type Plan struct {
	order kernels.Order
	fetch kernels.Fetch
}

// Enqueue puts the misses in address order, then reads them straight from the host tier into the output.
func (p *Plan) Enqueue(s device.Stream, tier kernels.HostRows, c codec.Codec, b Batch) error {
	p.order = kernels.Order{Found: b.Found, Counters: b.Counters, Scratch: b.Scratch, Tier: tier}
	if err := s.Launch(&p.order); err != nil {
		return err
	}
	p.fetch = kernels.Fetch{Found: b.Found, Counters: b.Counters, Tier: tier, Codec: c, Out: b.Out}
	return s.Launch(&p.fetch)
}
