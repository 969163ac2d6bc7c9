package transfer

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// Batch has the buffers that reading the misses of one Gather needs.
type Batch struct {
	// Found and Counters are the results of the lookup.
	Found, Counters device.Buffer
	// Counted says that the lookup has counted the misses by page: see Pages.
	Counted bool
	// Ordered and Buckets are scratch memory: the size of Found, and kernels.OrderBytes.
	Ordered, Buckets device.Buffer
	Out              device.Buffer
	// End is how the batch ends, one of its kernels being the reading of the misses.
	End     kernels.Ending
	Reading Reading
	// Absent receives the misses that the tier does not hold. It may be nil if the tier holds all rows.
	Absent *kernels.Absent
}

// Reading is how a batch's misses are read. The zero value has the GPU read them in any order.
type Reading struct {
	// Ordered has them grouped by the page of their host address first.
	Ordered bool
	// Units has few blocks read units of neighbouring misses, which suits tables that are BeyondTranslation. It needs Ordered.
	Units bool
	// Share has the host's processors read a part of them where the table's planner says so. It needs Ordered. nil: the GPU alone.
	// It must be nil while the stream captures a graph.
	Share *ShareTable
}

// Plan enqueues the reads of a batch's misses on a stream. It reuses its kernels, so that a batch allocates nothing. Not safe
// for concurrent use.
type Plan struct {
	order kernels.Order
	fetch kernels.Fetch
	terms kernels.Share
	open  kernels.ShareOpen
	share kernels.ShareFetch
	hosts uint32 // planned fraction of the last batch's misses for the host's processors, in 65536ths
	// sharer is the Sharer of a shared batch that may not have been enqueued yet, or nil.
	sharer *Sharer
}

// Pages returns what the batch's lookup is to count its misses in: no buckets where misses are read in any order.
func (b *Batch) Pages(tier kernels.HostRows) kernels.Pages {
	if b.Reading.Ordered {
		return kernels.Pages{Buckets: b.Buckets, Tier: tier}
	}
	return kernels.Pages{}
}

// Enqueue reads the misses into the output as b.Reading says. begun passes when the reading has begun.
func (p *Plan) Enqueue(s device.Stream, tier kernels.HostRows, c kernels.Codec, b Batch, begun device.Event) error {
	p.hosts = 0
	p.sharer = nil
	p.fetch = kernels.Fetch{Misses: b.Found, AtBack: true, Counters: b.Counters, Tier: tier, Codec: c, Out: b.Out, Begun: begun, End: b.End, Absent: b.Absent}
	rows := b.Found.Size() / kernels.FoundBytes
	if pages := b.Pages(tier); pages.Buckets.Size() != 0 {
		p.order = kernels.Order{Found: b.Found, Counters: b.Counters, Ordered: b.Ordered, Pages: pages, Counted: b.Counted}
		if err := s.Launch(&p.order); err != nil {
			return err
		}
		p.fetch.Misses, p.fetch.AtBack = b.Ordered, false
	}
	if share := b.Reading.Share; share != nil && b.Reading.Ordered {
		if terms, ok := share.next(rows); ok {
			return p.enqueueShared(s, b, terms)
		}
	}
	if b.Reading.Units && b.Reading.Ordered {
		p.share = kernels.ShareFetch{Fetch: p.fetch}
		return s.Launch(&p.share)
	}
	return s.Launch(&p.fetch)
}

func (p *Plan) enqueueShared(s device.Stream, b Batch, terms kernels.Share) error {
	p.terms, p.hosts = terms, terms.Fraction
	p.open = kernels.ShareOpen{Counters: b.Counters, Share: &p.terms}
	p.share = kernels.ShareFetch{Fetch: p.fetch, Share: &p.terms}
	p.sharer = b.Reading.Share.sharer
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

// Enqueued is called with the result of enqueueing, if launches are collected in a sequence. After an error the kernels of a
// shared batch may be missing, and workers must not wait for them.
func (p *Plan) Enqueued(err error) {
	if err != nil && p.sharer != nil {
		p.sharer.fail()
	}
	p.sharer = nil
}

// Chosen returns how the last batch's misses are read, "zero_copy", "zero_copy_ordered" or "shared", and the planned fraction of
// them for the host's processors.
func (p *Plan) Chosen() (strategy string, hostShare float64) {
	switch {
	case p.hosts != 0:
		return "shared", float64(p.hosts) / 65536
	case !p.fetch.AtBack:
		return "zero_copy_ordered", 0
	}
	return "zero_copy", 0
}
