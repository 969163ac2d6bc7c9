// Package attach is the client's side of a cache that several processes read: it maps the owner's memory as a [read.Set], by which batches of
// this process read like those of the owner.
//
// A [Session] is one attachment. It ends for the owner when its connection does; batches go on reading its memory until Close.
package attach

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/transfer"
)

// Options configure a Session.
type Options struct {
	Name  string // of this client, for the owner's statistics and errors
	Lanes int    // most batches at a time on one device
	// FewerLanes says that the owner may allow fewer.
	FewerLanes bool
	Timeout    time.Duration // how long the owner may give no sign of life while a request waits
	Scratch    int64         // most bytes to allocate on each device; 0: what the owner allows
	Workers    int           // goroutines of the host backend's kernels
	// OpenHost opens devices of the host backend.
	OpenHost func(n, workers int) []device.Device
	Tuning   *read.Tuning
	Share    transfer.ShareOptions
	// Absent returns what reads the absent rows of a table. Its rows have rowBytes bytes.
	Absent func(table, rowBytes int) read.RowFetcher
	// Before, if not nil, is an earlier session of the same cache. The new one uses its tables and counters on.
	Before *Session
}

// Session is an attachment to an owner. Its Set serves batches until Close.
type Session struct {
	Set *read.Set
	// Owner is what the owner said of itself.
	Owner wire.Reception

	peer    *wire.Peer
	welcome wire.Welcome
	codecs  []codec.Codec
	board   *board.Board
	seen    device.Device // that maps what the owner describes as memory of devices which this process does not see

	mu struct {
		sync.Mutex
		open    bool // devices are ready for batches
		regions map[uint64]*region
		// directories are what GPUs read of the ranges of resident tables, by device and table. They stay where they are for captured batches.
		directories map[[2]int]device.Buffer
		newest      *wire.Layout
		layout      *wire.Layout // that batches read by
		resume      func()       // lets batches begin again; nil: they may
		goesOn      bool         // it is not paused any more
		closed      bool
		err         error // why a layout could not be mapped
	}
	remaps sync.WaitGroup // freeing of memory that no batch reads any more
	stop   chan struct{}  // ends settling
	tasks  sync.WaitGroup
}

// region is memory of the owner. Its descriptor is closed when the memory is mapped.
type region struct {
	wire.Region
	file   *os.File
	buffer device.Buffer // once it is mapped
	by     device.Device // that has mapped it
}

// ErrSchema is wrapped by Open's error if the owner has other tables than the earlier session.
var ErrSchema = errors.New("cache: the owner has other tables")

// Open attaches to the owner at an address.
func Open(ctx context.Context, address string, o Options) (_ *Session, err error) {
	s := &Session{stop: make(chan struct{})}
	s.mu.regions, s.mu.directories = map[uint64]*region{}, map[[2]int]device.Buffer{}
	socket, table := wire.SplitTable(address)
	if s.peer, s.Owner, err = wire.Dial(ctx, socket, o.Name, o.Timeout, s.notice); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if _, err := s.peer.Call(ctx, wire.Attach, wire.AttachRequest{Lanes: o.Lanes, Fewer: o.FewerLanes, Scratch: o.Scratch, Table: table}, nil, &s.welcome); err != nil {
		return nil, err
	}
	if named := func(t wire.Table) bool { return t.Name == table }; table != "" && !slices.ContainsFunc(s.welcome.Tables, named) { // an older owner has one cache
		return nil, fmt.Errorf("cache: owner's tables must have one called %s", table)
	}
	if err := s.check(o.Before); err != nil {
		return nil, err
	}
	if err := s.openSet(ctx, o); err != nil {
		return nil, err
	}
	if err := s.join(ctx); err != nil {
		return nil, err
	}
	if err := s.setLengths(); err != nil {
		return nil, err
	}
	for _, d := range s.Set.Devices {
		s.tasks.Go(func() { d.SettleEnqueued(s.stop) })
	}
	return s, nil
}

// check returns an error for what this process cannot read.
func (s *Session) check(before *Session) error {
	w := &s.welcome
	if len(w.Tables) == 0 || len(w.Devices) == 0 || w.Lanes < 1 || w.Captures < 0 || w.Scratch < 0 || len(w.Views.Devices) != len(w.Devices) {
		return fmt.Errorf("cache: owner's description of %d tables, %d devices and %d lanes must be whole", len(w.Tables), len(w.Devices), w.Lanes)
	}
	for i := range w.Tables {
		if err := checkTable(&w.Tables[i]); err != nil {
			return err
		}
	}
	if before != nil {
		same := func(a, b wire.Table) bool {
			return a.Name == b.Name && a.DType == b.DType && a.RowBytes == b.RowBytes && a.Capacity == b.Capacity && a.Partial == b.Partial && a.Resident == b.Resident
		}
		if !slices.EqualFunc(before.welcome.Tables, w.Tables, same) || len(before.welcome.Devices) != len(w.Devices) {
			return ErrSchema
		}
	}
	return nil
}

// openSet makes the set: devices, tables and lanes.
func (s *Session) openSet(ctx context.Context, o Options) error {
	w := &s.welcome
	lost := make([]bool, len(w.Devices))
	for i, v := range w.Views.Devices {
		lost[i] = v.Lost != ""
	}
	devices, err := openDevices(w.Devices, lost, o.Workers, o.OpenHost)
	if err != nil {
		return err
	}
	whose := "the owner's limit for a client"
	if o.Scratch > 0 {
		whose = "the limit that this client has asked for"
	}
	for _, d := range devices {
		if l, ok := d.(device.Limiter); ok {
			l.Limit(w.Scratch, whose)
		}
	}
	s.Set = read.NewSet(devices, read.Sampling(w.Sampled), o.Tuning)
	s.Set.Lose = s.lose
	for i, d := range s.Set.Devices {
		if lost[i] {
			d.SetLost(lostBy(w.Views.Devices[i].Lost))
		} else if s.isHidden(i) {
			d.SetHidden(errHidden)
		}
		if !s.isHidden(i) && s.seen == nil {
			s.seen = d.Device
		}
	}
	metadata, err := s.mapped(w.Codecs, true, false)
	if err != nil {
		return err
	}
	var tables []*read.Table
	for i, t := range w.Tables {
		c, err := codecOf(t, metadata.Bytes())
		if err != nil {
			return fmt.Errorf("cache: table %s: %w", t.Name, err)
		}
		s.codecs = append(s.codecs, c)
		if o.Before != nil {
			tables = append(tables, o.Before.Set.Tables[i])
			continue
		}
		of, err := dtype.Parse(t.DType)
		if err != nil {
			return fmt.Errorf("cache: table %s: %w", t.Name, err)
		}
		one := &read.Table{Name: t.Name, DType: of, Tier: transfer.Elsewhere(transfer.Mode(t.Mode), t.RowBytes, t.Capacity, c)}
		if t.Resident {
			one.WantResident = new(read.ResidentOptions)
		}
		if t.Partial {
			one.Absent = o.Absent(i, t.RowBytes)
		}
		tables = append(tables, one)
	}
	for i, d := range s.Set.Devices {
		if o.Before != nil {
			d.Counts = o.Before.Set.Devices[i].Counts
		}
	}
	s.Set.SetTables(tables)
	memory, err := s.mapped(w.Board, true, true)
	if err != nil {
		return err
	}
	n := len(w.Devices)
	if s.board, err = board.Open(memory.Bytes(), board.Shape{Lanes: w.Lanes * n, Captures: w.Captures * n, Tables: len(w.Tables)}); err != nil {
		return err
	}
	for i, d := range s.Set.Devices {
		if err := s.openRing(d, i); err != nil {
			return err
		}
		d.ServeOn(read.BoardPart{
			Board: s.board, Memory: memory, Lanes: w.Lanes, Captures: w.Captures,
			Vacate: func(from, count int) error {
				return s.Call(context.Background(), wire.FreeCaptures, wire.FreeCapturesRequest{Device: i, From: from, Count: count}, nil, nil)
			},
		}, rand.Uint32())
	}
	return s.readFirst(ctx, o)
}

// isHidden says whether this process does not see a device of the owner.
func (s *Session) isHidden(i int) bool {
	_, is := s.Set.Devices[i].Device.(*hidden)
	return is
}

// readFirst makes the devices read by the current layout, and prepares them for batches.
func (s *Session) readFirst(ctx context.Context, o Options) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	layout := &s.welcome.Views
	if n := s.mu.newest; n != nil && n.Generation > layout.Generation {
		layout = n
	}
	if err := s.readByLocked(layout); err != nil {
		return err
	}
	for _, d := range s.Set.Devices {
		if d.IsLost() {
			continue
		}
		if err := d.Prepare(ctx, o.Share); err != nil {
			return err
		}
	}
	s.mu.open = true
	if n := s.mu.newest; n != nil && n.Generation > layout.Generation {
		return s.readByLocked(n)
	}
	return nil
}

// join waits until the owner lets batches begin.
func (s *Session) join(ctx context.Context) error {
	for {
		var r wire.Readiness
		if _, err := s.peer.Call(ctx, wire.Ready, wire.Mapped{Client: s.welcome.Client}, nil, &r); err != nil || r.Live {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
		s.mu.Lock()
		err := s.mu.err
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// setLengths makes the tables read their numbers of rows where the owner writes them.
func (s *Session) setLengths() error {
	sheet, err := s.mapped(s.welcome.Sheet, true, false)
	if err == nil && sheet.Size() < int64(len(s.Set.Tables))*8 {
		err = fmt.Errorf("cache: numbers of rows (%d bytes) must be those of %d tables", sheet.Size(), len(s.Set.Tables))
	}
	if err != nil {
		return err
	}
	words := unsafe.Slice((*atomic.Int64)(unsafe.Pointer(unsafe.SliceData(sheet.Bytes()))), len(s.Set.Tables))
	for i, t := range s.Set.Tables {
		t.Tier.SetLength(&words[i])
	}
	return nil
}

// codecOf returns a table's codec, nil if all rows are raw.
func codecOf(t wire.Table, metadata []byte) (codec.Codec, error) {
	if t.Codec == "" {
		return nil, nil
	}
	f, err := registry.Family(t.Codec)
	if err != nil {
		return nil, err
	}
	if t.MetaFrom < 0 || t.MetaBytes < 0 || t.MetaFrom > int64(len(metadata))-t.MetaBytes {
		return nil, fmt.Errorf("cache: codec metadata (%d bytes at %d) must lie in the %d shared", t.MetaBytes, t.MetaFrom, len(metadata))
	}
	return f.Unmarshal(slices.Clone(metadata[t.MetaFrom:][:t.MetaBytes]))
}

// Call sends a request to the owner.
func (s *Session) Call(ctx context.Context, method string, body any, payload []byte, result any) error {
	_, err := s.peer.Call(ctx, method, body, payload, result)
	return err
}

// Done returns a channel that is closed when the connection to the owner has ended.
func (s *Session) Done() <-chan struct{} { return s.peer.Done() }

// Err returns why the connection has ended, or why memory that the owner named could not be mapped; nil if all is well.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return s.mu.err
	}
	return s.peer.Err()
}

// Left lets an owner know, by another session, that no batch of this one runs any more. The owner need not be the same.
func (s *Session) Left(by *Session) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	by.Call(ctx, wire.Leave, wire.LeaveRequest{Client: s.welcome.Client}, nil, nil)
}

// leaveWait is how long a client that leaves waits for the owner to know. An owner that hangs learns it when the process ends.
const leaveWait = time.Second

// Freeze has the tables keep the numbers of rows that they have now, so that Close can unmap them.
func (s *Session) Freeze() {
	for _, t := range s.Set.Tables {
		n := new(atomic.Int64)
		n.Store(t.Tier.Rows())
		t.Tier.SetLength(n)
	}
}

// Close waits for batches under way, leaves, and unmaps the memory. No batch may begin any more. Tables that no other session uses must be frozen.
func (s *Session) Close() {
	if s.Set != nil {
		for _, d := range s.Set.Devices {
			d.Drain()
		}
	}
	close(s.stop)
	s.tasks.Wait()
	if s.board != nil {
		s.board.Leave() // for an owner that this process is not connected to any more
	}
	if s.welcome.Client != 0 && s.peer.Err() == nil {
		s.Left(s)
	}
	s.peer.Close()
	<-s.peer.Done() // no notice is handled any more
	s.remaps.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	if s.Set != nil {
		for _, d := range s.Set.Devices {
			d.Close()
		}
	}
	for _, r := range s.mu.regions {
		s.freeLocked(r)
	}
	for at, b := range s.mu.directories {
		s.Set.Devices[at[0]].Device.Free(b)
	}
	if s.Set != nil {
		for _, d := range s.Set.Devices {
			d.Device.Close()
		}
	}
}
