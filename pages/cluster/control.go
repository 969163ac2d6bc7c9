package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/valkey-io/valkey-go"
)

// compareAndSet sets a generation's state if it is the expected one, and, if there is a manifest, makes that the current one. If it is to replace a certain
// manifest, another one is kept, and 2 returned.
var compareAndSet = valkey.NewLuaScript(`
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if ARGV[5] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[5] then return 2 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if ARGV[4] ~= '' then redis.call('SET', KEYS[2], ARGV[4]) end
return 1`)

// control sends commands that change or read what a table's readers and loaders agree on. It has the connections of a store or a writer.
type control struct {
	keys
	o       Options
	client  valkey.Client // sends commands to masters
	reading valkey.Client // reads pages, from replicas too
	waiting *atomic.Int64 // slots on their way that a merge waits for; a store and its writers share it
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

// errReplaced says that the manifest that was to be replaced is not the current one any more.
var errReplaced = errors.New("another generation was committed meanwhile")

// swap is compareAndSet for one generation.
func (c control) swap(ctx context.Context, generation uint64, from, to state, manifest []byte) (bool, error) {
	return c.swapOver(ctx, generation, from, to, manifest, nil)
}

// swapOver is swap with a manifest to be replaced, nil for any.
func (c control) swapOver(ctx context.Context, generation uint64, from, to state, manifest, over []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	for wait := firstWait; ; wait = longer(wait) {
		n, err := compareAndSet.Exec(ctx, c.client, []string{c.generations(), c.manifest()},
			[]string{fmt.Sprint(generation), from.String(), to.String(), valkey.BinaryString(manifest), valkey.BinaryString(over)}).AsInt64()
		if err == nil && n == 0 && wait != firstWait {
			// An earlier try may have done it, and its answer been lost.
			if now, found, err := c.state(ctx, generation); err == nil && found && now == to {
				return true, nil
			}
		}
		if err == nil && n == 2 {
			return false, errReplaced
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

// get returns the values of keys. Errors wrap ErrMissing if there is a key that does not exist.
func (c control) get(ctx context.Context, names []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	for wait := firstWait; ; wait = longer(wait) {
		commands := make([]valkey.Completed, len(names))
		for i, name := range names {
			commands[i] = c.client.B().Get().Key(name).Build()
		}
		texts := make([]string, len(names))
		var failed error
		for i, r := range c.client.DoMulti(ctx, commands...) {
			text, err := r.ToString()
			if valkey.IsValkeyNil(err) {
				return nil, ErrMissing
			}
			if err != nil {
				failed = err
			}
			texts[i] = text
		}
		if failed == nil || !temporary(failed) || !sleep(ctx, wait) {
			return texts, failed
		}
	}
}

// each sends one command for each name, those that fail again, until controlTimeout passes without any success.
func (c control) each(ctx context.Context, names []string, command func(name string) valkey.Completed) error {
	return c.eachResult(ctx, names, command, func(string, valkey.ValkeyResult) {})
}

func (c control) eachResult(ctx context.Context, names []string, command func(name string) valkey.Completed, result func(name string, r valkey.ValkeyResult)) error {
	for wait := firstWait; ; wait = longer(wait) {
		commands := make([]valkey.Completed, len(names))
		for i, name := range names {
			commands[i] = command(name)
		}
		part, cancel := context.WithTimeout(ctx, controlTimeout)
		var again []string
		var last error
		for i, r := range c.client.DoMulti(part, commands...) {
			if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) {
				if !temporary(err) {
					cancel()
					return fmt.Errorf("cluster: key %s: %w", names[i], err)
				}
				again, last = append(again, names[i]), err
				continue
			}
			result(names[i], r)
		}
		cancel()
		if len(again) == 0 {
			return nil
		}
		if ctx.Err() != nil || len(again) == len(names) && wait == longestWait || !sleep(ctx, wait) {
			return fmt.Errorf("cluster: key %s: %w", again[0], errors.Join(ctx.Err(), last))
		}
		names = again
	}
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
