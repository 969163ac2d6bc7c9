package cluster

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tensorcache/tensorcache/internal/faults"
)

// Options are how a cluster is reached. The zero value has the defaults.
type Options struct {
	// Table is the table's name. "": that of the address, or else the only table that the cluster has.
	Table string
	// Credentials are user, password and certificates. [CredentialsFromEnvironment] reads them.
	Credentials Credentials
	// Masters has pages read from masters only. Otherwise replicas are read as well, which spreads the load.
	Masters bool
	// Timeout is how long a node has for one request, and for accepting a connection; 1 s if it is 0.
	Timeout time.Duration
	// Patience is how long a page is tried for, on all nodes together; 10 s if it is 0. The context may end sooner.
	Patience time.Duration
	// Hedge is after how long at least a request that was not answered is sent to another node as well; 50 ms if it is 0, never if it is
	// negative. It waits longer where nodes usually take longer.
	Hedge time.Duration
	// Connections is the number of connections to each node that read pages; as many as there are processors, but 2 to 4, if it is 0.
	Connections int
	// RequestBytes is the most bytes of pages of a request, but for one page; 512 KiB if it is 0.
	RequestBytes int
	// Lease is how long the cluster keeps a generation for a reader that no longer answers; two minutes if it is 0, at least a second.
	Lease time.Duration
	// Logger is told of nodes that fail and recover; slog.Default() if it is nil.
	Logger *slog.Logger
	// MeterProvider makes the store's OpenTelemetry instruments, tensorcache.cluster.*; the global one if it is nil.
	MeterProvider metric.MeterProvider

	// dial, in tests, replaces connections.
	dial dialer
	// replicasWait is how long loaders and Drop wait for replicas to have what their masters have.
	replicasWait time.Duration
	// settleWait is how long a merge waits for slots on their way between masters before it fails; a minute if it is 0.
	settleWait time.Duration
}

// Credentials are what a cluster asks its clients for. They come from files and the environment, never from flags or addresses.
type Credentials struct {
	User, Password string
	// TLS is used for addresses that begin with rediss. nil: the system's authorities, no certificate of our own.
	TLS *tls.Config
}

// withDefaults returns the options with defaults in place of zeros, or all their faults.
func (o Options) withDefaults() (Options, error) {
	o.Timeout = cmp.Or(o.Timeout, time.Second)
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	o.Hedge = cmp.Or(o.Hedge, 50*time.Millisecond)
	o.Connections = cmp.Or(o.Connections, min(max(runtime.GOMAXPROCS(0), 2), 4))
	o.RequestBytes = cmp.Or(o.RequestBytes, 512<<10)
	o.Lease = cmp.Or(o.Lease, 2*time.Minute)
	o.replicasWait = cmp.Or(o.replicasWait, 10*time.Second)
	o.settleWait = cmp.Or(o.settleWait, time.Minute)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	f := faults.List{Prefix: "cluster: "}
	f.If(o.Timeout < time.Millisecond, "Timeout (%v) must be at least 1ms", o.Timeout)
	f.If(o.Patience < o.Timeout, "Patience (%v) must be at least Timeout (%v)", o.Patience, o.Timeout)
	f.If(o.Connections < 1 || o.Connections > 1024, "Connections (%d) must be 1 to 1024", o.Connections)
	f.If(o.RequestBytes < 1, "RequestBytes (%d) must be at least 1", o.RequestBytes)
	f.If(o.Lease < time.Second, "Lease (%v) must be at least 1s", o.Lease)
	return o, f.Err()
}
