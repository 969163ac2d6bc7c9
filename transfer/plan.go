package transfer

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// Batch is what the misses of one Gather need: what its lookup found, scratch memory, and the output.
type Batch struct {
	Found, Counters device.Buffer
	// Ordered has the size of Found, and Buckets kernels.OrderBytes.
	Ordered, Buckets device.Buffer
	Out              device.Buffer
}

// Plan enqueues the reads of a batch's misses on a stream. It keeps its kernels between batches, so that a batch
// allocates nothing; not safe for concurrent use.
type Plan struct {
	order kernels.Order
	fetch kernels.Fetch
}

// Enqueue puts the misses in address order, then reads them straight from the host tier into the output.
func (p *Plan) Enqueue(s device.Stream, tier kernels.HostRows, c kernels.Codec, b Batch) error {
	p.order = kernels.Order{Found: b.Found, Counters: b.Counters, Ordered: b.Ordered, Buckets: b.Buckets, Tier: tier}
	if err := s.Launch(&p.order); err != nil {
		return err
	}
	p.fetch = kernels.Fetch{Misses: b.Ordered, Counters: b.Counters, Tier: tier, Codec: c, Out: b.Out}
	return s.Launch(&p.fetch)
}
