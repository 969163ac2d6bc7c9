package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Stats are what a store has read since it was opened.
type Stats struct {
	// Requests is the number of requests that reads were divided into. Hedged were sent to a second node as the first was late; Repeated is
	// how often one was sent again after a failure.
	Requests, Hedged, Repeated int64
	// FailedPages were not delivered.
	FailedPages int64
	// MovingSlots is the number of slots on their way between masters that a merge of updates waits for now; one that leaves a master counts for both.
	MovingSlots int64
	// Nodes are the nodes that pages were read from, by address.
	Nodes []NodeStats
}

// NodeStats are of one node.
type NodeStats struct {
	Addr string
	// Requests were sent, Failures of them had no answer. Pages with so many Bytes came from the node.
	Requests, Failures, Pages, Bytes int64
	// Usual is how long a request takes, a moving average.
	Usual time.Duration
	// LeftAlone is set while the node is not asked, as it failed several times in a row.
	LeftAlone bool
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
func (s *Store) measure(p metric.MeterProvider) error {
	if p == nil {
		p = otel.GetMeterProvider()
	}
	m := p.Meter("github.com/tensorcache/tensorcache/pages/cluster")
	var err error
	counter := func(name, unit, text string) metric.Int64ObservableCounter {
		c, fault := m.Int64ObservableCounter("tensorcache.cluster."+name, metric.WithUnit(unit), metric.WithDescription(text))
		if err == nil {
			err = fault
		}
		return c
	}
	gauge := func(name, unit, text string) metric.Float64ObservableGauge {
		g, fault := m.Float64ObservableGauge("tensorcache.cluster."+name, metric.WithUnit(unit), metric.WithDescription(text))
		if err == nil {
			err = fault
		}
		return g
	}
	requests := counter("requests", "{request}", "Requests for pages that were sent to a node")
	failures := counter("failures", "{request}", "Requests that a node did not answer")
	pages := counter("pages", "{page}", "Pages that a node delivered")
	bytes := counter("io", "By", "Bytes of pages that a node delivered")
	hedged := counter("requests.hedged", "{request}", "Requests that were sent to a second node, as the first was late")
	repeated := counter("requests.repeated", "{request}", "Requests that were sent again after a failure")
	failed := counter("pages.failed", "{page}", "Pages that were not delivered")
	usual := gauge("request.duration", "s", "How long a request to a node takes, a moving average")
	moving := gauge("slots.moving", "{slot}", "Slots on their way between masters that a merge of updates waits for")
	alone := gauge("node.down", "1", "1 while a node is not asked, as it failed several times in a row")
	if err != nil {
		return fmt.Errorf("cluster: metrics: %w", err)
	}
	table := attribute.String("tensorcache.table.name", s.manifest.Name)
	s.metrics, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		now := s.Stats()
		of := metric.WithAttributes(table)
		o.ObserveInt64(hedged, now.Hedged, of)
		o.ObserveInt64(repeated, now.Repeated, of)
		o.ObserveInt64(failed, now.FailedPages, of)
		o.ObserveFloat64(moving, float64(now.MovingSlots), of)
		for _, n := range now.Nodes {
			of := metric.WithAttributes(table, attribute.String("server.address", n.Addr))
			o.ObserveInt64(requests, n.Requests, of)
			o.ObserveInt64(failures, n.Failures, of)
			o.ObserveInt64(pages, n.Pages, of)
			o.ObserveInt64(bytes, n.Bytes, of)
			o.ObserveFloat64(usual, n.Usual.Seconds(), of)
			down := 0.0
			if n.LeftAlone {
				down = 1
			}
			o.ObserveFloat64(alone, down, of)
		}
		return nil
	}, requests, failures, pages, bytes, hedged, repeated, failed, usual, moving, alone)
	if err != nil {
		return fmt.Errorf("cluster: metrics: %w", err)
	}
	return nil
}
