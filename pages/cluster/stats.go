package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tensorcache/tensorcache/internal/metrics"
)

// Stats are what a store has read since it was opened.
type Stats struct {
	// Requests is the number of requests that reads were divided into. Hedged were sent to a second node as the first was late; Repeated is
	// how often one was sent again after a failure.
	Requests int64
	Hedged   int64 `kind:"counter" metric:"tensorcache.cluster.requests.hedged" unit:"{request}" help:"Requests that were sent to a second node, as the first was late."`
	Repeated int64 `kind:"counter" metric:"tensorcache.cluster.requests.repeated" unit:"{request}" help:"Requests that were sent again after a failure."`
	// FailedPages were not delivered.
	FailedPages int64 `kind:"counter" metric:"tensorcache.cluster.pages.failed" unit:"{page}" help:"Pages that were not delivered."`
	// MovingSlots is the number of slots on their way between masters that a merge of updates waits for now; one that leaves a master counts for both.
	MovingSlots int64 `kind:"gauge" metric:"tensorcache.cluster.slots.moving" unit:"{slot}" help:"Slots on their way between masters that a merge of updates waits for, counted on both."`
	// Nodes are the nodes that pages were read from, by address.
	Nodes []NodeStats
}

// NodeStats are of one node.
type NodeStats struct {
	Addr string
	// Requests were sent, Failures of them had no answer. Pages with so many Bytes came from the node.
	Requests int64 `kind:"counter" metric:"tensorcache.cluster.requests" unit:"{request}" help:"Requests for pages that were sent to a node."`
	Failures int64 `kind:"counter" metric:"tensorcache.cluster.failures" unit:"{request}" help:"Requests that a node did not answer."`
	Pages    int64 `kind:"counter" metric:"tensorcache.cluster.pages" unit:"{page}" help:"Pages that a node delivered."`
	Bytes    int64 `kind:"counter" metric:"tensorcache.cluster.io" unit:"By" help:"Bytes of pages that a node delivered."`
	// Usual is how long a request takes, a moving average.
	Usual time.Duration `kind:"gauge" metric:"tensorcache.cluster.request.duration" unit:"s" help:"How long a request to a node takes, a moving average."`
	// LeftAlone is set while the node is not asked, as it failed several times in a row.
	LeftAlone bool `kind:"gauge" metric:"tensorcache.cluster.node.down" unit:"1" help:"1 while a node is not asked, as it failed several times in a row."`
}

// Stats returns what the store has read so far.
func (s *Store) Stats() Stats {
	all := Stats{Requests: s.counts.requests.Load(), Hedged: s.counts.hedges.Load(), Repeated: s.counts.retries.Load(), FailedPages: s.counts.failed.Load(),
		MovingSlots: s.control.waiting.Load()}
	seen := map[*node]bool{}
	for _, sh := range s.net.now.Load().shards {
		for _, n := range sh.nodes {
			if seen[n] {
				continue
			}
			seen[n] = true
			all.Nodes = append(all.Nodes, NodeStats{Addr: n.addr, Requests: n.counts.requests.Load(), Failures: n.counts.failures.Load(),
				Pages: n.counts.pages.Load(), Bytes: n.counts.bytes.Load(), Usual: n.usually(), LeftAlone: n.open()})
		}
	}
	slices.SortFunc(all.Nodes, func(a, b NodeStats) int { return strings.Compare(a.Addr, b.Addr) })
	return all
}

// measure registers metrics of the store, which are read from Stats when they are collected.
func (s *Store) measure(p metric.MeterProvider) (err error) {
	if p == nil {
		p = otel.GetMeterProvider()
	}
	table := attribute.String("tensorcache.table.name", s.manifest.Name)
	s.metrics, err = metrics.Register(p.Meter("github.com/tensorcache/tensorcache/pages/cluster"), []any{Stats{}, NodeStats{}}, func(tell metrics.Observe) {
		now := s.Stats()
		tell(&now, table)
		for i := range now.Nodes {
			tell(&now.Nodes[i], table, attribute.String("server.address", now.Nodes[i].Addr))
		}
	})
	if err != nil {
		return fmt.Errorf("cluster: metrics: %w", err)
	}
	return nil
}
