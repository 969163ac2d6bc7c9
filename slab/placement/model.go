package placement

import "fmt"

// Problem is what Solve decides about: devices that read each other's slabs, all running batches of the same workload.
type Problem struct {
	Rates Rates
	// Payload is the bytes for slots of each device, 1 to 8.
	Payload []int64
	// Curve is the ranking of the rows.
	Curve *Curve
}

// Plan is how rows are placed: those whose slots take the first HotBytes of the ranking in every slab, those after them by
// hash.
type Plan struct {
	HotBytes int64
	// Nanos is what a looked-up row takes, the mean over all lookups and devices: a batch of n rows takes Rates.Overhead and n
	// times that. Partition and Replicate are the same without copies, and with copies of everything.
	Nanos, Partition, Replicate float64
	// Hits and Misses are what reading them takes of Nanos, if nothing were read beside them.
	Hits, Misses float64
	// Local, Peer and Host are the shares of lookups that are read from the own slab, from a peer's and from the host tier.
	Local, Peer, Host float64
	// Why says it in words.
	Why string
}

// BatchMicros predicts what a batch of n rows takes, in microseconds.
func (p Plan) BatchMicros(r Rates, n int) float64 { return r.Overhead + float64(n)*p.Nanos/1e3 }

// Solve returns the plan with the least predicted time. Of plans that are equally good it takes the one with fewer copies.
func (p Problem) Solve() Plan {
	largest := int64(0)
	for _, n := range p.Payload {
		largest = max(largest, n)
	}
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

// Predict returns the plan with so many bytes of copies, and what it takes.
func (p Problem) Predict(hotBytes int64) Plan {
	largest := int64(0)
	for _, n := range p.Payload {
		largest = max(largest, n)
	}
	q, partition, replicate := p.predict(min(hotBytes, largest)), p.predict(0), p.predict(largest)
	q.Partition, q.Replicate = partition.Nanos, replicate.Nanos
	q.Why = p.why(q, partition, replicate)
	return q
}

// predict is the cost model. A device reads its own slab and its peers' by one kernel, whose warps wait for either: their times
// add up. Misses are read beside that: the longer of the two counts, and of the shorter one the part that Rates.Beside says. A row
// of a peer's slab takes as long as its stored bytes take to arrive, or its own to be decoded, whichever is longer.
func (p Problem) predict(hot int64) Plan {
	rest := int64(0)
	for _, n := range p.Payload {
		rest += max(0, n-hot)
	}
	copied := p.Curve.at(hot)
	cached := p.Curve.at(hot + rest)
	divided, missed := cached.minus(copied), p.Curve.sum.minus(cached)
	missed.lookups += p.Curve.tail.lookups
	missed.rows += p.Curve.tail.rows
	missed.stored += p.Curve.tail.stored
	all := p.Curve.sum.lookups + p.Curve.tail.lookups
	q := Plan{HotBytes: hot}
	if all == 0 {
		return q
	}
	r := p.Rates // GB/s are bytes a nanosecond
	hottest := 0.0
	if rest > 0 && len(p.Payload) > 1 {
		hottest = p.Curve.next(hot)
	}
	for _, n := range p.Payload {
		own, share := 1.0, 0.0 // of the copied and of the divided rows that lie here
		if hot > n {
			own = float64(n) / float64(hot)
		}
		if rest > 0 {
			share = float64(max(0, n-hot)) / float64(rest)
		}
		part := func(copied, divided float64) (local, peer float64) {
			return own*copied + share*divided, (1-own)*copied + (1-share)*divided
		}
		localRows, peerRows := part(copied.rows, divided.rows)
		_, peerStored := part(copied.stored, divided.stored)
		hits := localRows/r.Local + max(peerStored/r.Peer, peerRows/r.Local)
		misses := missed.stored / r.Host
		q.Nanos += max(hits, misses) + r.Beside*min(hits, misses) + r.Row*all
		q.Nanos += r.Same * hottest * (1 - share)
		q.Hits += hits
		q.Misses += misses
		local, peer := part(copied.lookups, divided.lookups)
		q.Local += local
		q.Peer += peer
	}
	n := float64(len(p.Payload)) * all
	q.Nanos, q.Hits, q.Misses = q.Nanos/n, q.Hits/n, q.Misses/n
	q.Local, q.Peer, q.Host = q.Local/n, q.Peer/n, missed.lookups/all
	return q
}

// why says which plan is the best one, and what all three are predicted to take.
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
