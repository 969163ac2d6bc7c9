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

// Where the reach of the device's address translation covers the table, or a batch is so small that launches cost more than
// translation, misses are read in any order.
const (
	orderedTier  = 512 << 20 // bytes
	orderedBatch = 4096      // rows
)

// Enqueue puts the misses in address order where that pays, then reads them straight from the host tier into the output.
// begun passes when the reading has begun.
func (p *Plan) Enqueue(s device.Stream, tier kernels.HostRows, c kernels.Codec, b Batch, begun device.Event) error {
	p.fetch = kernels.Fetch{Misses: b.Found, AtBack: true, Counters: b.Counters, Tier: tier, Codec: c, Out: b.Out, Begun: begun}
	if tier.Mem.Size() >= orderedTier && b.Found.Size() >= orderedBatch*kernels.FoundBytes {
		p.order = kernels.Order{Found: b.Found, Counters: b.Counters, Ordered: b.Ordered, Buckets: b.Buckets, Tier: tier}
		if err := s.Launch(&p.order); err != nil {
			return err
		}
		p.fetch.Misses, p.fetch.AtBack = b.Ordered, false
	}
	return s.Launch(&p.fetch)
}
