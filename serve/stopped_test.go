//go:build linux

package serve_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/serve"
)

// TestOwner_Stopped: no request waits for an owner that is stopped for longer than AttachOptions.Timeout, and the error names it. Reads go on. When the owner
// goes on, so do requests.
func TestOwner_Stopped(t *testing.T) {
	t.Parallel()
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	owner := start(t, "own", address, "host")
	owner.expect("ready")
	o := cache.AttachOptions{Timeout: 400 * time.Millisecond}
	attached := func() *cache.Cache {
		c, err := cache.Attach(ctx, address, o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, closed := attached(), attached()
	defer a.Close()
	control, err := serve.Dial(ctx, address, "control")
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	owner.signal(syscall.SIGSTOP)

	bounded := func(what string, f func() error) error {
		t.Helper()
		begun := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- f() }()
		select {
		case err := <-ended:
			t.Logf("%s: %v after %v", what, err, time.Since(begun))
			return err
		case <-time.After(time.Minute):
			t.Fatalf("%s hangs", what)
			return nil
		}
	}
	stopped := func(what, request string, f func() error) {
		t.Helper()
		err := bounded(what, f)
		want := fmt.Sprintf("owner at %s (process %d) has not answered %s within 400ms: it gives no sign of life: stopped, or out of file descriptors", address, owner.cmd.Process.Pid, request)
		if !errors.Is(err, cache.ErrOwner) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", what, err, want)
		}
	}
	row := make([]byte, 64)
	stopped("Update", "update", func() error { return a.Update(ctx, 0, []int64{1}, row) })
	stopped("Invalidate", "invalidate", func() error { return a.Invalidate(0, []int64{1}) })
	stopped("Explain", "explanations", func() error { _, err := a.Explain(0, []int64{1}); return err })
	stopped("Cached", "cached", func() error { _, err := a.Cached(0, []int64{1}, nil); return err })
	stopped("Refresh", "refresh", func() error { return a.Refresh(ctx) })
	stopped("SetBudget", "budget", func() error { return a.SetBudget(ctx, 1<<20) })
	stopped("Snapshot", "snapshot", func() error { return a.Snapshot(filepath.Join(t.TempDir(), "snap")) })
	stopped("Attach", "hello", func() error { _, err := cache.Attach(ctx, address, o); return err })
	stopped("Stats", "stats", func() error {
		s, err := a.Stats()
		if err != nil || s.OwnerError == "" || s.Machine == nil {
			return fmt.Errorf("statistics %+v, %w", s, err)
		}
		return fmt.Errorf("%w: %s", cache.ErrOwner, s.OwnerError)
	})
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := bounded("status of a control", func() error { _, err := control.Status(short); return err }); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "owner at "+address) {
		t.Errorf("status of a control: %v", err)
	}
	if err := bounded("Close", closed.Close); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := bounded("Gather", func() error { return a.Gather(ctx, cache.Request{Rows: []int64{3, 999}, Out: make([]byte, 128)}) }); err != nil {
		t.Errorf("Gather: %v", err)
	}

	owner.signal(syscall.SIGCONT)
	until(t, "the owner updates again", func() bool { return a.Update(ctx, 0, []int64{2}, row) == nil })
	if s, err := a.Stats(); err != nil || s.OwnerError != "" {
		t.Errorf("after it goes on: %v, %q", err, s.OwnerError)
	}
}

// stuckPolicy is a policy that does not say how much memory it takes while it is stuck.
type stuckPolicy struct {
	admission.Policy
	stuck *atomic.Bool
	free  chan struct{}
}

func (p stuckPolicy) MemoryBytes() int64 {
	if p.stuck.Load() {
		<-p.free
	}
	return 1000
}

// TestStats_OwnerStuck: statistics of an owner that gives signs of life but no statistics are the last known ones, and say so.
func TestStats_OwnerStuck(t *testing.T) {
	t.Parallel()
	p := stuckPolicy{admission.NewLRU(), new(atomic.Bool), make(chan struct{})}
	c := open(t, 100, func(o *cache.Options) { o.Shared, o.Admission.Policy = true, p })
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	t.Cleanup(func() { close(p.free) })
	p.stuck.Store(true)
	said := make(chan struct{})
	go func() {
		defer close(said)
		s, err := a.Stats()
		if err != nil || s.Machine == nil || !strings.Contains(s.OwnerError, ": no statistics within 5s: ") {
			t.Errorf("statistics of %v, %q, %v", s.Machine, s.OwnerError, err)
		}
	}()
	select {
	case <-said:
	case <-time.After(time.Minute):
		t.Error("Stats hangs")
	}
}

// TestOwner_StoppedTiers: rows that only a stopped owner can read fail, and Prefetch does, too.
func TestOwner_StoppedTiers(t *testing.T) {
	t.Parallel()
	dir := packed(t, 20_000)
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	owner := start(t, "own-pages", address, "host", dir)
	owner.expect("ready")
	a, err := cache.Attach(ctx, address, cache.AttachOptions{Timeout: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	owner.signal(syscall.SIGSTOP)
	s, err := a.Stats()
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int64, s.Tables[0].Rows)
	for i := range ids {
		ids[i] = int64(i)
	}
	want := fmt.Sprintf("owner at %s (process %d) has not answered ", address, owner.cmd.Process.Pid)
	begun := time.Now()
	if err := a.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, len(ids)*64)}); err == nil || !strings.Contains(err.Error(), want+"absent") {
		t.Errorf("Gather: %v", err)
	}
	if err := a.Prefetch(0, ids[:10]); !errors.Is(err, cache.ErrOwner) || !strings.Contains(err.Error(), want+"prefetch") {
		t.Errorf("Prefetch: %v", err)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("took %v", took)
	}
}
