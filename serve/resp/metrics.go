package resp

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// measure registers the server's metrics, which are read when they are collected.
func (s *Server) measure(p metric.MeterProvider) error {
	m := p.Meter("github.com/tensorcache/tensorcache/serve/resp")
	var err error
	counter := func(name, unit, text string) metric.Int64ObservableCounter {
		c, fault := m.Int64ObservableCounter("tensorcache.resp."+name, metric.WithUnit(unit), metric.WithDescription(text))
		if err == nil {
			err = fault
		}
		return c
	}
	connections := counter("connections", "{connection}", "Connections that were served")
	cut := counter("connections.cut", "{connection}", "Connections that the server refused or ended, by reason")
	commands := counter("commands", "{command}", "Commands that were replied to")
	failed := counter("logins.failed", "{login}", "Logins with a wrong user or password")
	clients, fault := m.Int64ObservableGauge("tensorcache.resp.clients", metric.WithUnit("{connection}"), metric.WithDescription("Connections now"))
	if err == nil {
		err = fault
	}
	memory, fault := m.Int64ObservableGauge("tensorcache.resp.memory", metric.WithUnit("By"), metric.WithDescription("Bytes of long commands and replies now"))
	if err == nil {
		err = fault
	}
	if err == nil {
		s.metrics, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
			for r, name := range reasonNames {
				o.ObserveInt64(cut, s.endings.of(reason(r)), metric.WithAttributes(attribute.String("reason", name)))
			}
			o.ObserveInt64(connections, s.counts.connections.Load())
			o.ObserveInt64(commands, s.counts.commands.Load())
			o.ObserveInt64(failed, s.logins.Failed())
			o.ObserveInt64(clients, s.counts.connected.Load())
			o.ObserveInt64(memory, s.memory.held())
			return nil
		}, connections, cut, commands, failed, clients, memory)
	}
	if err != nil {
		return fmt.Errorf("resp: metrics: %w", err)
	}
	return nil
}
