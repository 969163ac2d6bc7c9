package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

type dialer func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

// controlTimeout is how long a control command may take; it may have to wait until a replica has taken its master's place.
const controlTimeout = 15 * time.Second

// readBuffer is the buffer of a connection that reads pages. Longer pages are read into their memory past the buffer.
const readBuffer = 32 << 10

// connect returns a client that sends commands to masters, and one whose connections may read from replicas, and wait less long.
func connect(a address, o Options) (control, reading valkey.Client, err error) {
	option := valkey.ClientOption{
		InitAddress: a.nodes, Username: o.Credentials.User, Password: o.Credentials.Password, ClientName: "tensorcache",
		Dialer: net.Dialer{Timeout: o.Timeout}, DialCtxFn: o.dial, ConnWriteTimeout: controlTimeout,
		DisableCache: true, ReadBufferEachConn: readBuffer, WriteBufferEachConn: 64 << 10,
		BlockingPoolSize: o.Connections,
		// A node that is not asked any more must not delay the look at the cluster's topology.
		ClusterOption: valkey.ClusterOption{ShardsRefreshInterval: 5 * time.Second},
	}
	if a.tls {
		option.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if o.Credentials.TLS != nil {
			option.TLSConfig = o.Credentials.TLS.Clone()
		}
	}
	if control, err = valkey.NewClient(option); err != nil {
		return nil, nil, fmt.Errorf("cluster: %s: %w", strings.Join(a.nodes, ","), err)
	}
	// Connections to nodes of a cluster begin with READONLY, which masters ignore.
	option.ReplicaOnly = control.Mode() == valkey.ClientModeCluster
	option.DisableRetry = true
	option.ConnWriteTimeout = o.Timeout
	if reading, err = valkey.NewClient(option); err != nil {
		control.Close()
		return nil, nil, fmt.Errorf("cluster: %s: %w", strings.Join(a.nodes, ","), err)
	}
	return control, reading, nil
}

// token returns a name that nobody else has.
func token() string { return rand.Text() }

const firstWait, longestWait = 10 * time.Millisecond, 500 * time.Millisecond

// longer returns the wait before the next try.
func longer(d time.Duration) time.Duration { return min(2*d, longestWait) }

// sleep waits half of d to d, so that readers do not come back together. It returns false if the context ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + randomPart(d/2))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
