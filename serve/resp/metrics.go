package resp

import (
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tensorcache/tensorcache/internal/metrics"
)

// counted is what a server has counted, and has now.
type counted struct {
	Connections int64 `kind:"counter" metric:"tensorcache.resp.connections" unit:"{connection}" help:"Connections that were served."`
	Commands    int64 `kind:"counter" metric:"tensorcache.resp.commands" unit:"{command}" help:"Commands that were replied to."`
	Failed      int64 `kind:"counter" metric:"tensorcache.resp.logins.failed" unit:"{login}" help:"Logins with a wrong user or password."`
	Clients     int64 `kind:"gauge" metric:"tensorcache.resp.clients" unit:"{connection}" help:"Connections now."`
	Memory      int64 `kind:"gauge" metric:"tensorcache.resp.memory" unit:"By" help:"Bytes of long commands and replies, and of what is read ahead, now."`
}

// countedCuts is how often a server has refused or ended a connection, for one reason.
type countedCuts struct {
	Connections int64 `kind:"counter" metric:"tensorcache.resp.connections.cut" unit:"{connection}" help:"Connections that the server refused or ended: too many clients, most memory, no reply taken (unread), http, protocol errors, no login in time, a reply that failed (incomplete), idle, killed, user revoked."`
}

// measure registers the server's metrics, which are read when they are collected.
func (s *Server) measure(p metric.MeterProvider) (err error) {
	s.metrics, err = metrics.Register(p.Meter("github.com/tensorcache/tensorcache/serve/resp"), []any{counted{}, countedCuts{}}, func(tell metrics.Observe) {
		tell(&counted{s.counters.connections.Load(), s.counters.commands(), s.logins.Failed(), s.counters.connected.Load(), s.memory.held()})
		for r, name := range reasonNames {
			tell(&countedCuts{s.endings.of(reason(r))}, attribute.String("reason", name))
		}
	})
	if err != nil {
		return fmt.Errorf("resp: metrics: %w", err)
	}
	return nil
}
