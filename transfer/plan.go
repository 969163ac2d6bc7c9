package transfer

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// Batch has the buffers for reading the misses of one Gather.
type Batch struct {
	// Found and Counters are the results of the lookup.
	Found, Counters device.Buffer
	// Counted says that the lookup has counted the misses by page, as Pages asks.
	Counted bool
	// Ordered and Buckets are scratch memory: the size of Found, and kernels.OrderBytes.
	Ordered, Buckets device.Buffer
	Out              device.Buffer
	// End says how the batch ends. Reading the misses is one of its kernels.
	End     kernels.Ending
	Reading Reading
	// Absent receives the misses that the tier does not hold. It may be nil if the tier holds all rows.
	Absent *kernels.Absent
}

// Reading says how a batch's misses are read. In the zero value the GPU reads them in any order.
type Reading struct {
	// Ordered groups them by the page of their host address first.
	Ordered bool
	// Units makes few thread blocks read units of neighbouring misses. That suits tables that are BeyondTranslation.
	// It needs Ordered.
	Units bool
	// Share lets host threads read a part of the misses, as the table's planner decides. If it is nil, the GPU reads
	// all. It needs Ordered. It must be nil while the stream captures a graph.
	Share *ShareTable
}

// Plan enqueues the reads of a batch's misses on a stream. It reuses its kernels, so that a batch allocates nothing.
// It is not safe for concurrent use.
type Plan struct {
	order kernels.Order
	fetch kernels.Fetch
	terms kernels.Share
	open  kernels.ShareOpen
	share kernels.ShareFetch
	hosts uint32 // planned fraction of the last batch's misses for host threads, in 65536ths
	// sharer is the Sharer of a shared batch that may not be enqueued yet, or nil.
	sharer *Sharer
}

// Pages returns the buckets in which the batch's lookup must count its misses by page. There are none if misses are
// read in any order.
func (b *Batch) Pages(tier kernels.HostRows) kernels.Pages {
	if b.Reading.Ordered {
		return kernels.Pages{Buckets: b.Buckets, Tier: tier}
	}
	return kernels.Pages{}
}

// Enqueue enqueues reading the misses into the output as b.Reading says. begun is recorded when the reading begins.
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

// Enqueued is called with the result of enqueueing a sequence, if launches are collected in one. After an error the
// kernels of a shared batch may be missing. Then workers must not wait for them.
func (p *Plan) Enqueued(err error) {
	if err != nil && p.sharer != nil {
		p.sharer.fail()
	}
	p.sharer = nil
}

// Chosen returns how the last batch's misses are read ("zero_copy", "zero_copy_ordered" or "shared"), and the planned
// fraction of them for host threads.
func (p *Plan) Chosen() (strategy string, hostShare float64) {
	switch {
	case p.hosts != 0:
		return "shared", float64(p.hosts) / 65536
	case !p.fetch.AtBack:
		return "zero_copy_ordered", 0
	}
	return "zero_copy", 0
}
