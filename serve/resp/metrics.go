package resp

import (
	"fmt"
	"strconv"

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
	Connections int64 `kind:"counter" metric:"tensorcache.resp.connections.cut" unit:"{connection}" help:"Connections that the server refused or ended: too many clients, most memory, no reply taken (unread), http, protocol errors, no login, incomplete replies, idle, killed, user revoked."`
}

// countedCalls are those of one command.
type countedCalls struct {
	Done     int64 `kind:"counter" metric:"tensorcache.resp.calls" with:"tensorcache.outcome=done" unit:"{command}" help:"Commands that were done, that failed, or that were rejected: wrong arguments, or no right to it."`
	Failed   int64 `kind:"counter" metric:"tensorcache.resp.calls" with:"tensorcache.outcome=failed"`
	Rejected int64 `kind:"counter" metric:"tensorcache.resp.calls" with:"tensorcache.outcome=rejected"`
	Time     int64 `kind:"counter" metric:"tensorcache.resp.time" unit:"us" help:"Time that commands took. Pipelined GETs, which become one Gather, take it together."`
}

// countedLatency has the calls of a command up to a bound: a histogram as Prometheus has them, made of a counter for each bound.
type countedLatency struct {
	Calls int64 `kind:"counter" metric:"tensorcache.resp.latency" unit:"{command}" help:"Commands that took at most le seconds: histogram_quantile of Prometheus takes it as it is."`
}

// measure registers the server's metrics, which are read when they are collected.
func (s *Server) measure(p metric.MeterProvider) (err error) {
	s.metrics, err = metrics.Register(p.Meter("github.com/tensorcache/tensorcache/serve/resp"), []any{counted{}, countedCuts{}, countedCalls{}, countedLatency{}}, func(tell metrics.Observe) {
		tell(&counted{s.counters.connections.Load(), s.counters.commands(), s.logins.Failed(), s.counters.connected.Load(), s.memory.held()})
		for r, name := range reasonNames {
			tell(&countedCuts{s.endings.of(reason(r))}, attribute.String("reason", name))
		}
		for name, one := range s.Counters().Commands {
			command := attribute.String("command", name)
			tell(&countedCalls{one.Calls - one.Failed, one.Failed, one.Rejected, one.Time.Microseconds()}, command)
			for i, n := range one.upTo() {
				tell(&countedLatency{n}, command, attribute.String("le", bounds[i]))
			}
		}
	})
	if err != nil {
		return fmt.Errorf("resp: metrics: %w", err)
	}
	return nil
}

// bounds are the upper bounds of the buckets of a command's latency, in seconds.
var bounds = func() (all [LatencyBuckets]string) {
	for i := range all {
		all[i] = strconv.FormatFloat(float64(int64(1)<<i)/1e6, 'g', -1, 64)
	}
	all[LatencyBuckets-1] = "+Inf"
	return all
}()

// upTo returns how many calls took at most the bound of each bucket.
func (c *CommandCounters) upTo() (all [LatencyBuckets]int64) {
	sum := int64(0)
	for i, n := range c.Latency {
		sum += n
		all[i] = sum
	}
	return all
}
