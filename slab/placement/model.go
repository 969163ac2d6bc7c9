package placement

import (
	"fmt"
	"slices"
)

// Problem describes 1 to 8 devices that read each other's slabs and run batches of the same workload at once.
type Problem struct {
	Rates Rates
	// Payload has the bytes for slots of each device.
	Payload []int64
	// Curve has the rows, ranked.
	Curve *Curve
}

// Plan is a split of the ranking: rows whose slots take the first HotBytes lie in every slab, the others in one.
type Plan struct {
	HotBytes int64
	// Nanos is the predicted time of a looked-up row in nanoseconds, the mean over all lookups and devices: a batch of n rows takes
	// n times that. Partition and Replicate are the same for no copies and for copies of everything.
	Nanos, Partition, Replicate float64
	// Hits and Misses are the times of reading only the hits and only the misses, in nanoseconds a looked-up row. Both are read at
	// once: Nanos is about the larger one.
	Hits, Misses float64
	// Local, Peer and Host are the shares of lookups that read the own slab, another device's and the host tier.
	Local, Peer, Host float64
	// Why is the reason, for people.
	Why string
}

// largest is the most that copies can take.
func (p Problem) largest() int64 { return max(0, slices.Max(p.Payload)) }

// Solve returns the plan with the least predicted time, and of equally good plans the one with fewer copies.
func (p Problem) Solve() Plan {
	largest := p.largest()
	best := p.predict(0)
	partition, replicate := best, p.predict(largest)
	consider := func(q Plan) {
		if q.Nanos < best.Nanos*(1-1e-9) {
			best = q
		}
	}
	for _, at := range p.Curve.points {
		if at.slots >= largest {
			break
		}
		consider(p.predict(at.slots))
	}
	consider(replicate)
	best.Partition, best.Replicate = partition.Nanos, replicate.Nanos
	best.Why = p.why(best, partition, replicate)
	return best
}

// Predict returns the plan with so many bytes of copies.
func (p Problem) Predict(hotBytes int64) Plan {
	largest := p.largest()
	q, partition, replicate := p.predict(min(hotBytes, largest)), p.predict(0), p.predict(largest)
	q.Partition, q.Replicate = partition.Nanos, replicate.Nanos
	q.Why = p.why(q, partition, replicate)
	return q
}

// predict is the cost model. One kernel reads hits of the own slab and of peers' slabs, so their times add up. Misses are read at the
// same time as hits, and the longer of the two counts. A row of a peer's slab takes as long as its stored bytes need to arrive or its
// decoded bytes to be written, whichever is longer. A miss takes the time of its stored bytes on the link, but at least that of
// Curve.LeastMiss bytes.
func (p Problem) predict(hot int64) Plan {
	rest := int64(0)
	for _, n := range p.Payload {
		rest += max(0, n-hot)
	}
	copied := p.Curve.at(hot)
	cached := p.Curve.at(hot + rest)
	partitioned, missed := cached.minus(copied), p.Curve.sum.minus(cached)
	missed.lookups += p.Curve.tail.lookups
	missed.rows += p.Curve.tail.rows
	missed.misses += p.Curve.tail.misses
	all := p.Curve.sum.lookups + p.Curve.tail.lookups
	q := Plan{HotBytes: hot}
	if all == 0 {
		return q
	}
	r := p.Rates // 1 GB/s is 1 byte a nanosecond
	for _, n := range p.Payload {
		own, share := 1.0, 0.0 // of the copied and of the partitioned rows, those that lie here
		if hot > n {
			own = float64(n) / float64(hot)
		}
		if rest > 0 {
			share = float64(max(0, n-hot)) / float64(rest)
		}
		part := func(copied, partitioned float64) (local, peer float64) {
			return own*copied + share*partitioned, (1-own)*copied + (1-share)*partitioned
		}
		localRows, peerRows := part(copied.rows, partitioned.rows)
		_, peerStored := part(copied.stored, partitioned.stored)
		hits := localRows/r.Local + max(peerStored/r.Peer, peerRows/r.Local)
		misses := missed.misses / r.Host
		q.Nanos += max(hits, misses)
		q.Hits += hits
		q.Misses += misses
		local, peer := part(copied.lookups, partitioned.lookups)
		q.Local += local
		q.Peer += peer
	}
	n := float64(len(p.Payload)) * all
	q.Nanos, q.Hits, q.Misses = q.Nanos/n, q.Hits/n, q.Misses/n
	q.Local, q.Peer, q.Host = q.Local/n, q.Peer/n, missed.lookups/all
	return q
}

// why says what decided, with the predicted times of all three plans.
func (p Problem) why(best, partition, replicate Plan) string {
	of := func(q Plan) string {
		return fmt.Sprintf("%.3g ns a row (hits %.3g beside misses %.3g)", q.Nanos, q.Hits, q.Misses)
	}
	figures := fmt.Sprintf("partitioned %s, all copied %s", of(partition), of(replicate))
	switch {
	case len(p.Payload) == 1:
		return "one device"
	case p.Curve.sum.lookups == 0:
		return "partitioned: nothing is known of the lookups yet"
	case best.HotBytes == 0 && best.Misses >= best.Hits:
		return "partitioned: reading misses takes longer than reading hits of peers beside them, and copies would cost hits: " + figures
	case best.HotBytes == 0:
		return "partitioned: copies would cost more by misses than they save of peers' reads: " + figures
	case best.Peer == 0:
		return "all copied: peers' reads cost more than the misses that the copies make: " + figures
	}
	return fmt.Sprintf("the first %d bytes of the ranking copied, the others partitioned: %s; %s", best.HotBytes, of(best), figures)
}
