package transfer

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// Batch is what the misses of one Gather need: what its lookup found, scratch memory, and the output.
type Batch struct {
	Found, Counters device.Buffer
	// Counted says that the lookup has counted the misses in Pages.
	Counted bool
	// Ordered has the size of Found, and Buckets kernels.OrderBytes.
	Ordered, Buckets device.Buffer
	Out              device.Buffer
	// End is how the batch ends, one of its kernels being the reading of the misses.
	End kernels.Ending
	// Share is the table's, nil where its misses are not shared. It must be nil while the stream captures a graph.
	Share *ShareTable
}

// Plan enqueues the reads of a batch's misses on a stream. It keeps its kernels between batches, so that a batch
// allocates nothing; not safe for concurrent use.
type Plan struct {
	order kernels.Order
	fetch kernels.Fetch
	terms kernels.Share
	open  kernels.ShareOpen
	share kernels.ShareFetch
	hosts uint32 // the part of the last batch's misses that the host's processors were to gather, in 65536ths
	// sharer is that of a shared batch until it is known to be enqueued.
	sharer *Sharer
}

// Where the reach of the device's address translation covers the table, or a batch is so small that launches cost more than
// translation, misses are read in any order.
const (
	orderedTier  = 512 << 20 // bytes
	orderedBatch = 4096      // rows
)

// Pages returns what the batch's lookup is to count its misses in, if it is to be Counted: without buckets where they are read in any
// order.
func (b *Batch) Pages(tier kernels.HostRows) kernels.Pages {
	always := b.Share != nil && b.Share.always
	if always || tier.Mem.Size() >= orderedTier && b.Found.Size()/kernels.FoundBytes >= orderedBatch {
		return kernels.Pages{Buckets: b.Buckets, Tier: tier}
	}
	return kernels.Pages{}
}

// Enqueue puts the misses in address order where that pays, then reads them into the output: straight from the host tier, or
// part of them through the host's processors. begun passes when the reading has begun.
func (p *Plan) Enqueue(s device.Stream, tier kernels.HostRows, c kernels.Codec, b Batch, begun device.Event) error {
	p.hosts = 0
	p.sharer = nil
	p.fetch = kernels.Fetch{Misses: b.Found, AtBack: true, Counters: b.Counters, Tier: tier, Codec: c, Out: b.Out, Begun: begun, End: b.End}
	rows := b.Found.Size() / kernels.FoundBytes
	if pages := b.Pages(tier); pages.Buckets.Size() != 0 {
		p.order = kernels.Order{Found: b.Found, Counters: b.Counters, Ordered: b.Ordered, Pages: pages, Counted: b.Counted}
		if err := s.Launch(&p.order); err != nil {
			return err
		}
		p.fetch.Misses, p.fetch.AtBack = b.Ordered, false
	}
	if b.Share != nil {
		if terms, ok := b.Share.next(rows); ok {
			return p.enqueueShared(s, b, terms)
		}
	}
	if tier.Mem.Size() >= shareTier && tier.RowBytes <= shareRow && !p.fetch.AtBack {
		p.share = kernels.ShareFetch{Fetch: p.fetch}
		return s.Launch(&p.share)
	}
	return s.Launch(&p.fetch)
}

func (p *Plan) enqueueShared(s device.Stream, b Batch, terms kernels.Share) error {
	p.terms, p.hosts = terms, terms.Fraction
	p.open = kernels.ShareOpen{Counters: b.Counters, Share: &p.terms}
	p.share = kernels.ShareFetch{Fetch: p.fetch, Share: &p.terms}
	p.sharer = b.Share.sharer
	p.sharer.expect()
	err := s.Launch(&p.open)
	if err == nil {
		err = s.Launch(&p.share)
	}
	if err != nil {
		p.Enqueued(err)
	}
	return err
}

// Enqueued says whether all that Enqueue launched has been enqueued, where launches are collected. After an error there may be a
// share that nothing lists or closes: workers must not wait for it.
func (p *Plan) Enqueued(err error) {
	if err != nil && p.sharer != nil {
		p.sharer.fail()
	}
	p.sharer = nil
}

// Chosen says how the last batch's misses were to be read: "zero_copy", "zero_copy_ordered", or "shared"; and which part of them the
// host's processors were to gather.
func (p *Plan) Chosen() (strategy string, hostShare float64) {
	switch {
	case p.hosts != 0:
		return "shared", float64(p.hosts) / 65536
	case !p.fetch.AtBack:
		return "zero_copy_ordered", 0
	}
	return "zero_copy", 0
}
