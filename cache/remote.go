package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/attach"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// remote is the owner of an attached cache. Batches read by the session of the moment. When the owner has ended, that session stays until there is
// one with another owner.
type remote struct {
	address string
	options attach.Options
	cache   *Cache
	session atomic.Pointer[session]
	life    context.Context // ends with Close
	stop    context.CancelFunc
	tasks   sync.WaitGroup

	mu struct {
		sync.Mutex
		gone  error // why there is no owner; nil: there is one
		since time.Time
		last  *Stats // the owner's last statistics
	}
	// old are sessions with owners that have ended which captured batches still read by, and err the first error of such batches whose graphs are destroyed.
	old struct {
		sync.Mutex
		sessions []*session
		err      error
	}
}

// session is an attachment with the calls that use it.
type session struct {
	*attach.Session
	gate gate
}

// Intervals of attempts to attach again.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
)

func newRemote(address string, o attach.Options) *remote {
	r := &remote{address: address, options: o}
	r.life, r.stop = context.WithCancel(context.Background())
	return r
}

// open attaches to an owner, which it tries to reach for the time wait.
func (r *remote) open(ctx context.Context, wait time.Duration) (*attach.Session, error) {
	for end := time.Now().Add(wait); ; {
		s, err := attach.Open(ctx, r.address, r.options)
		var unreachable *net.OpError
		if err == nil || !errors.As(err, &unreachable) || time.Now().After(end) {
			return s, err
		}
		select {
		case <-time.After(firstRetry):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// use makes batches that begin from now on read by another session. It returns the one before.
func (r *remote) use(s *attach.Session) (before *session) {
	r.options.Before = s
	return r.session.Swap(&session{s, newGate()})
}

func (r *remote) pin() (*read.Set, *gate) {
	for {
		s := r.session.Load()
		if s.gate.enter() { // else another session is in its place
			return s.Set, &s.gate
		}
	}
}

// follow attaches anew whenever the owner has ended.
func (r *remote) follow() {
	for {
		select {
		case <-r.session.Load().Done():
		case <-r.life.Done():
			return
		}
		r.setGone(r.session.Load().Err())
		r.session.Load().Resume() // the owner may have ended while batches were paused
		r.cache.watch.Log.Warn("the owner of the cache is gone: reads go on with the rows as they are", slog.String("address", r.address))
		next := r.again()
		if next == nil {
			return
		}
		before := r.use(next)
		r.setGone(nil)
		r.machine() // what Stats says should this owner end, too
		r.cache.watch.Log.Info("attached to an owner again", slog.String("address", r.address))
		before.gate.close()
		r.old.Lock() // before a batch can say that it is of an owner that has ended, so that Check says it, too
		r.old.sessions = append(r.old.sessions, before)
		r.old.Unlock()
		before.Set.Retire(fmt.Errorf("%w: %s: a captured batch reads the rows of an owner that has ended: capture it again", ErrOwner, r.address))
		if before.Set.Captured() {
			r.cache.watch.Log.Warn("captured batches read the rows of an owner that has ended, until their graphs are destroyed", slog.String("address", r.address))
			r.tasks.Go(func() { r.outlive(before) })
			continue
		}
		r.outlive(before)
	}
}

// outlive ends a session that another one has replaced once it has no captured batches any more: graphs cannot be told of other memory.
func (r *remote) outlive(before *session) {
	for before.Set.Captured() {
		select {
		case <-time.After(lookForCaptured):
			continue
		case <-r.life.Done():
		}
		break
	}
	r.old.Lock()
	r.old.err = cmp.Or(r.old.err, before.Set.Faults(false))
	r.old.sessions = slices.DeleteFunc(r.old.sessions, func(s *session) bool { return s == before })
	r.old.Unlock()
	r.end(before)
}

func (r *remote) checkOld() error {
	r.old.Lock()
	defer r.old.Unlock()
	err := r.old.err
	r.old.err = nil
	for _, s := range r.old.sessions {
		err = cmp.Or(err, s.Set.Faults(true))
	}
	return err
}

// lookForCaptured is how often outlive asks whether graphs have been destroyed.
const lookForCaptured = 100 * time.Millisecond

// end ends a session that another one has replaced.
func (r *remote) end(before *session) {
	for _, d := range before.Set.Devices {
		d.Drain()
	}
	before.Left(r.session.Load().Session)
	before.Session.Close()
}

// again returns a new session, nil if the cache closes first.
func (r *remote) again() *attach.Session {
	said := ""
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		select {
		case <-time.After(wait):
		case <-r.life.Done():
			return nil
		}
		next, err := attach.Open(r.life, r.address, r.options)
		if err == nil {
			return next
		}
		var refused *wire.Error
		var version *wire.VersionError
		if errors.Is(err, attach.ErrSchema) || errors.As(err, &version) || errors.As(err, &refused) { // else there is no owner
			r.setGone(err)
			if why := err.Error(); why != said {
				said = why
				r.cache.watch.Log.Warn("the owner does not let this process attach again", slog.String("address", r.address), slog.Any("error", err))
			}
		}
	}
}

// setGone notes why there is no owner, nil if there is one.
func (r *remote) setGone(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.gone == nil {
		r.mu.since = time.Now()
	}
	r.mu.gone = err
}

// ownerError returns why there is no owner, nil if there is one.
func (r *remote) ownerError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.gone == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: for %v: %w", ErrOwner, r.address, time.Since(r.mu.since).Round(100*time.Millisecond), r.mu.gone)
}

// release ends the attachment.
func (r *remote) release(bool) error {
	set, pinned := r.pin()
	for _, d := range set.Devices { // ends the observation of batches that nobody has waited for and that have finished
		d.SettleFinished()
	}
	unpin(pinned)
	r.cache.watch.Finish()
	r.stop()
	r.tasks.Wait()
	s := r.session.Load()
	s.Resume()
	s.gate.close()
	s.Freeze()
	s.Session.Close()
	return nil
}

// rows reads the number in the owner's memory until Close unmaps that, and then the last one.
func (r *remote) rows(table int) int64 {
	c := r.cache
	if !c.gate.enter() {
		<-c.gate.finished
		return c.set.Tables[table].Tier.Rows()
	}
	defer c.gate.leave()
	return c.length(table)
}

func (r *remote) own(call string) error {
	return badOption("cache: %s must be called in the owner, not on an attached cache", call)
}

func (r *remote) share(sharing.Options) (sharing.Owner, error) {
	return nil, fmt.Errorf("cache: an attached cache cannot be shared: its owner is at %s", r.address)
}

// call sends a request to the owner. Errors wrap the sentinels that they wrap there, and ErrOwner if the owner cannot be asked.
func (r *remote) call(ctx context.Context, method string, body any, payload []byte, result any) error {
	if err := r.ownerError(); err != nil {
		return err
	}
	s := r.session.Load()
	if !s.gate.enter() {
		return r.call(ctx, method, body, payload, result)
	}
	defer s.gate.leave()
	return r.failed(s.Call(ctx, method, body, payload, result))
}

// failed returns an error of a request as package cache returns it.
func (r *remote) failed(err error) error {
	var of *wire.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &of):
		for _, k := range errorKinds {
			if k.Kind == of.Kind {
				return &remoteError{of.Text, k.Err, of.Done}
			}
		}
		switch of.Kind {
		case "canceled":
			return &remoteError{of.Text, context.Canceled, of.Done}
		case "deadline":
			return &remoteError{of.Text, context.DeadlineExceeded, of.Done}
		}
		return &remoteError{of.Text, ErrOwner, of.Done}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, wire.ErrSilent): // it names the address
		return fmt.Errorf("%w: %w", ErrOwner, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrOwner, r.address, err)
}

// remoteError is an error of the owner.
type remoteError struct {
	text string
	is   error
	done *int // rows that an update has replaced, nil for others
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

// Requests carry at most requestRows row numbers and requestBytes of rows, or one longer row.
const (
	requestRows  = 1 << 18
	requestBytes = 4 << 20
)

// inRequests calls f for parts of rows.
func inRequests(rows []int64, rowBytes int, f func(from, to int) error) error {
	part := requestRows
	if rowBytes > 0 {
		part = max(1, min(part, requestBytes/rowBytes))
	}
	for from := 0; from < len(rows); from += part {
		if err := f(from, min(from+part, len(rows))); err != nil {
			return err
		}
	}
	return nil
}

func (r *remote) update(ctx context.Context, table int, rows []int64, data []byte, _ *observe.Cause) (done int, begun bool, err error) {
	if len(rows) == 0 {
		return 0, false, nil
	}
	rowBytes := len(data) / len(rows)
	err = inRequests(rows, rowBytes, func(from, to int) error {
		err := r.call(ctx, wire.Update, wire.RowsRequest{Table: table, Rows: rows[from:to]}, data[from*rowBytes:to*rowBytes], nil)
		var of *remoteError
		switch {
		case err == nil:
			done, begun = to, true
		case errors.As(err, &of) && of.done != nil:
			done, begun = from+*of.done, true
		}
		return err
	})
	return done, begun, err
}

func (r *remote) invalidate(table int, rows []int64, _ *observe.Cause) error {
	return inRequests(rows, 0, func(from, to int) error {
		return r.call(r.life, wire.Invalidate, wire.RowsRequest{Table: table, Rows: rows[from:to]}, nil, nil)
	})
}

func (r *remote) refresh(ctx context.Context) error { return r.call(ctx, wire.Refresh, nil, nil, nil) }

func (r *remote) setBudget(ctx context.Context, bytes int64) error {
	return r.call(ctx, wire.SetBudget, wire.BudgetRequest{Bytes: bytes}, nil, nil)
}

// hasPages says whether a table is one of pages.
func (r *remote) hasPages(table int) bool { return r.session.Load().Set.Tables[table].Absent != nil }

func (r *remote) merge(ctx context.Context, table int) error {
	if !r.hasPages(table) {
		return nil
	}
	return r.call(ctx, wire.Merge, wire.MergeRequest{Table: table}, nil, nil)
}

func (r *remote) retarget(ctx context.Context, table, target int) error {
	return r.call(ctx, wire.Retarget, wire.RetargetRequest{Table: table, Target: target}, nil, nil)
}

// ask appends what the owner says of each of rows to all. The result of a request has rowBytes bytes a row.
func ask[T any](r *remote, method string, table int, rows []int64, rowBytes int, all []T) ([]T, error) {
	err := inRequests(rows, rowBytes, func(from, to int) error {
		var part []T
		if err := r.call(r.life, method, wire.RowsRequest{Table: table, Rows: rows[from:to]}, nil, &part); err != nil {
			return err
		}
		if err := sameRows(len(part), to-from); err != nil {
			return err
		}
		all = append(all, part...)
		return nil
	})
	return all, err
}

// sameRows returns an error unless an owner has said something of each row.
func sameRows(said, of int) error {
	if said != of {
		return fmt.Errorf("%w: answered for %d of %d rows", ErrOwner, said, of)
	}
	return nil
}

func (r *remote) cached(table int, rows []int64, dst []bool) ([]bool, error) {
	return ask(r, wire.Cached, table, rows, 0, dst)
}

func (r *remote) explain(table int, rows []int64) ([]Explanation, error) {
	return ask[Explanation](r, wire.Explanations, table, rows, explainBytes, nil)
}

// missed returns what the owner knows of rows that were missed.
func (r *remote) missed(ctx context.Context, table int, rows []int64) (all observe.Misses, err error) {
	var known wire.Misses
	if err := r.call(ctx, wire.Missed, wire.RowsRequest{Table: table, Rows: rows}, nil, &known); err != nil {
		return all, err
	}
	if err := sameRows(len(known.Rows), len(rows)); err != nil {
		return all, err
	}
	all.Estimated = known.Estimated
	for i, m := range known.Rows {
		w := observe.Withdrawal{Key: hashmap.Key(table, rows[i]), At: m.At, Age: m.Age}
		if m.By != "" {
			w.By = &observe.Cause{What: m.By, Span: m.Cause()}
		}
		all.Rows = append(all.Rows, observe.Miss{Stored: m.Stored, Estimate: admission.Estimate(m.Estimate), Withdrawal: w})
	}
	return all, nil
}

// explainBytes is more than the JSON of an Explanation takes.
const explainBytes = 1 << 10

func (r *remote) snapshot(path string) (bytes int, err error) {
	absolute, err := filepath.Abs(path) // the owner may run in another folder
	if err != nil {
		return 0, err
	}
	return 0, r.call(r.life, wire.Snapshot, wire.SnapshotRequest{Path: absolute}, nil, nil)
}

// stats puts this process's counters among the owner's statistics.
func (r *remote) stats() (s Stats, err error) {
	machine, err := r.machine()
	if machine != nil {
		s = *machine
		s.Tables, s.Devices = slices.Clone(s.Tables), slices.Clone(s.Devices)
	}
	s.Machine, s.OwnerError, s.Clients = machine, text(err), nil
	r.count(&s)
	return s, nil
}

func (r *remote) ownStats() (s Stats, err error) {
	s.OwnerError = text(r.ownerError())
	r.count(&s)
	return s, nil
}

// count sets the counters of this process.
func (r *remote) count(s *Stats) {
	set, pinned := r.pin()
	defer unpin(pinned)
	s.ScratchBytes, s.StagingBytes = 0, 0
	for _, d := range set.Devices {
		d.SettleReplays()
	}
	for i, t := range set.Tables {
		if i == len(s.Tables) {
			s.Tables = append(s.Tables, TableStats{Name: t.Name, Codec: codecName(t), DType: t.DType, RowBytes: t.Tier.RowBytes()})
		}
		s.Tables[i].Rows, s.Tables[i].Capacity = t.Tier.Rows(), t.Tier.Capacity()
		done := t.Counts.Totals()
		s.Tables[i].count(done)
		if r := s.Tables[i].Resident; r != nil {
			own := *r
			own.OverflowReads, own.OverflowBytesRead = done.Overflow, done.HostBytes
			s.Tables[i].Resident = &own
		}
	}
	for i, d := range set.Devices {
		d.SettleFinished()
		if i == len(s.Devices) {
			s.Devices = append(s.Devices, DeviceStats{Node: UnknownNode})
		}
		one := &s.Devices[i]
		if d.IsLost() {
			one.Lost, one.Error = true, d.LostReason().Error()
		}
		one.count(d)
		s.ScratchBytes += d.ScratchBytes()
		s.StagingBytes += d.StagingBytes()
	}
}

// statsWait is how long Stats waits for an owner that gives signs of life, but no statistics.
const statsWait = 5 * time.Second

// machine returns the owner's statistics, or the last that it gave, with the reason.
func (r *remote) machine() (*Stats, error) {
	ctx, cancel := context.WithTimeout(r.life, statsWait)
	defer cancel()
	s := new(Stats)
	err := r.call(ctx, wire.Stats, nil, nil, s)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %s: no statistics within %v: %w", ErrOwner, r.address, statsWait, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.mu.last = s
	}
	return r.mu.last, err
}
