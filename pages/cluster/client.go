package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
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
		return nil, nil, connectError(a, o, err)
	}
	// Connections to nodes of a cluster begin with READONLY, which masters ignore.
	option.ReplicaOnly = control.Mode() == valkey.ClientModeCluster
	option.DisableRetry = true
	option.ConnWriteTimeout = o.Timeout
	if reading, err = valkey.NewClient(option); err != nil {
		control.Close()
		return nil, nil, connectError(a, o, err)
	}
	return control, reading, nil
}

// connectError is the error of a client that could not be made. It says what the server leaves open: it closes or leaves unanswered a connection that does not speak TLS as it does.
func connectError(a address, o Options, err error) error {
	hint := ""
	switch {
	case strings.HasPrefix(err.Error(), "NOAUTH") && o.Credentials.Password == "":
		hint = "no password was given: the environment has it in TENSORCACHE_CLUSTER_PASSWORD or TENSORCACHE_CLUSTER_PASSWORD_FILE, Go in Options.Credentials: "
	case a.tls && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, new(tls.RecordHeaderError))):
		hint = "no TLS handshake; a server without TLS has the address redis://: "
	case !a.tls && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		hint = "connection closed; a server with TLS has the address rediss://: "
	}
	return fmt.Errorf("cluster: %s: %s%w", strings.Join(a.nodes, ","), hint, err)
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
