package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
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

// compareAndSet sets a generation's state if it is the expected one, and, if there is a manifest, makes that the current one.
var compareAndSet = valkey.NewLuaScript(`
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if ARGV[4] ~= '' then redis.call('SET', KEYS[2], ARGV[4]) end
return 1`)

// control sends commands that change or read what a table's readers and loaders agree on. It has the connections of a store or a writer.
type control struct {
	keys
	o       Options
	client  valkey.Client // sends commands to masters
	reading valkey.Client // reads pages, from replicas too
}

func (c control) close() {
	c.client.Close()
	c.reading.Close()
}

// do sends a command, again while the cluster is without a master for the slot.
func (c control) do(ctx context.Context, command func() valkey.Completed) (valkey.ValkeyResult, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	for wait := firstWait; ; wait = longer(wait) {
		r := c.client.Do(ctx, command())
		err := r.Error()
		if err == nil || valkey.IsValkeyNil(err) || !temporary(err) || !sleep(ctx, wait) {
			return r, err
		}
	}
}

// swap is compareAndSet for one generation.
func (c control) swap(ctx context.Context, generation uint64, from, to state, manifest []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	for wait := firstWait; ; wait = longer(wait) {
		n, err := compareAndSet.Exec(ctx, c.client, []string{c.generations(), c.manifest()},
			[]string{fmt.Sprint(generation), from.String(), to.String(), valkey.BinaryString(manifest)}).AsInt64()
		if err == nil && n == 0 && wait != firstWait {
			// An earlier try may have done it, and its answer been lost.
			if now, found, err := c.state(ctx, generation); err == nil && found && now == to {
				return true, nil
			}
		}
		if err == nil || !temporary(err) || !sleep(ctx, wait) {
			return n == 1, err
		}
	}
}

// state returns a generation's state.
func (c control) state(ctx context.Context, generation uint64) (state, bool, error) {
	r, err := c.do(ctx, func() valkey.Completed {
		return c.client.B().Hget().Key(c.generations()).Field(fmt.Sprint(generation)).Build()
	})
	if valkey.IsValkeyNil(err) {
		return state{}, false, nil
	}
	if err != nil {
		return state{}, false, err
	}
	text, err := r.ToString()
	if err != nil {
		return state{}, false, err
	}
	s, err := parseState(text)
	return s, true, err
}

// temporary reports whether a command may succeed if it is sent again.
func temporary(err error) bool {
	if ve, ok := errors.AsType[*valkey.ValkeyError](err); ok {
		return redirected(ve) || ve.IsTryAgain() || ve.IsClusterDown() || ve.IsLoading() || strings.HasPrefix(ve.Error(), "MASTERDOWN")
	}
	return !errors.Is(err, valkey.ErrClosing) && !errors.Is(err, context.Canceled) && !permanentTLS(err)
}

// redirected reports whether a node says that another one has the slot.
func redirected(ve *valkey.ValkeyError) bool {
	_, moved := ve.IsMoved()
	_, asked := ve.IsAsk()
	return moved || asked
}

// permanentTLS reports whether a connection failed for a reason that does not go away.
func permanentTLS(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

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
