package share

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// Guest implements sharing.Guest. Owner.mu guards the fields without another rule.
type Guest struct {
	owner   *Owner
	number  uint64
	process sharing.Process
	name    string
	lanes   int // of each device
	home    int // the device by which its board was allocated
	memory  device.Buffer
	board   *board.Board // readable until gone
	boardID uint64

	sent map[uint64]bool // regions that the guest has been sent
	told uint64          // generation of the last layout that it was sent
	live bool            // its batches may run
	lost bool            // its connection has ended
	gone bool
	kick chan struct{} // has the sender look for a newer layout

	stall  stall
	killed bool

	since   time.Time
	counted [][]board.Totals // by device and table, as read last
	vacated [][]board.Totals // by device and table: of captured batches that have given up their places
	doubted bool             // its counters have been nonsense
}

// Admit implements sharing.Owner. It closes p, after an error too.
func (w *Owner) Admit(ctx context.Context, p sharing.Process, lanes int, send func(*wire.Message) error) (sharing.Guest, *wire.Welcome, error) {
	if err := w.settled(ctx); err != nil {
		p.Close()
		return nil, nil, err
	}
	home := slices.IndexFunc(w.set.Devices, func(d *read.Device) bool { return !d.IsLost() })
	if home < 0 {
		p.Close()
		return nil, nil, w.set.Devices[0].LostError()
	}
	sharer, err := device.SharerOf(w.set.Devices[home].Device)
	if err != nil {
		p.Close()
		return nil, nil, err
	}
	shape := board.Shape{Lanes: lanes * len(w.set.Devices), Captures: captures * len(w.set.Devices), Tables: len(w.set.Tables)}
	memory, err := sharer.AllocSharedHost(nil, shape.Bytes(), boardName)
	if err != nil {
		p.Close()
		return nil, nil, err
	}
	g := &Guest{
		owner: w, process: p, name: p.String(), lanes: lanes, home: home, memory: memory, board: board.New(memory.Bytes(), shape), sent: map[uint64]bool{},
		kick: make(chan struct{}, 1), since: time.Now(),
	}
	for range w.set.Devices {
		g.counted, g.vacated = append(g.counted, make([]board.Totals, len(w.set.Tables))), append(g.vacated, make([]board.Totals, len(w.set.Tables)))
	}
	welcome, messages, err := w.enter(g)
	defer closeFiles(messages)
	for _, m := range messages {
		if err == nil {
			err = send(m)
		}
	}
	if err != nil {
		g.Leave()
		return nil, nil, err
	}
	w.tasks.Go(func() { g.send(send) })
	go func() { // not a task: it waits for a process that may outlive the cache
		if p.Wait() {
			g.Leave()
		}
	}()
	return g, welcome, nil
}

// settled waits while rows of a lost device are withdrawn: the layout names the device's memory until then, which may not be exported any more.
func (w *Owner) settled(ctx context.Context) error {
	for w.set.Paused() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.life:
			return errClosed
		case <-time.After(20 * poll):
		}
	}
	return nil
}

// enter makes a guest known, and returns its welcome with the messages that bring the memory.
func (w *Owner) enter(g *Guest) (*wire.Welcome, []*wire.Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closed {
		w.set.Devices[g.home].Device.Free(g.memory)
		g.process.Close()
		g.gone = true
		return nil, nil, errClosed
	}
	w.mu.last++
	g.number = w.mu.last
	w.mu.guests[g.number] = g
	r := &w.mu.regions
	g.boardID = r.ref(g.memory, g.home, true, true, boardName, forever)
	welcome := &wire.Welcome{
		Client: g.number, Tables: w.tables, Lanes: g.lanes, Captures: captures, Sampled: w.sampled, Views: w.layoutLocked(), Board: g.boardID,
		Sheet:  r.ref(w.sheet, 0, true, false, "lengths of tables", forever),
		Codecs: r.ref(w.codecs, 0, true, false, "codec metadata", forever),
	}
	for i, d := range w.set.Devices {
		info := d.Device.Info()
		welcome.Devices = append(welcome.Devices, wire.Device{Kind: info.Kind, Name: info.Name, Address: info.Address})
		if d.Ring != nil {
			records, head := d.Ring.Memory()
			welcome.Rings = append(welcome.Rings, wire.Ring{
				Records: r.ref(records, i, false, true, "sample ring", forever), Head: r.ref(head, i, false, true, "head of the sample ring", forever),
			})
		}
	}
	g.told = welcome.Views.Generation
	messages, err := g.newLocked()
	return welcome, messages, err
}

// Ready implements sharing.Guest.
func (g *Guest) Ready() bool {
	w := g.owner
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.gone {
		return false
	}
	if g.board.Generation() == w.set.Generation() {
		g.live = true
		return true
	}
	g.wake()
	return false
}

// wake has the guest sent the current layout.
func (g *Guest) wake() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// send sends layouts until the guest is gone or cannot be reached.
func (g *Guest) send(send func(*wire.Message) error) {
	w := g.owner
	for {
		select {
		case <-g.kick:
		case <-w.life:
			return
		}
		messages, gone, err := g.news()
		if gone {
			return
		}
		for _, m := range messages {
			if err == nil {
				err = send(m)
			}
		}
		closeFiles(messages)
		if err != nil {
			w.o.Log.Warn("client cannot be told of new memory", slog.String("client", g.name), slog.Any("error", err))
			return
		}
	}
}

// news returns the messages that bring the current layout, none if the guest has it. gone says that the guest needs none any more.
func (g *Guest) news() (messages []*wire.Message, gone bool, err error) {
	w := g.owner
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.gone {
		return nil, true, nil
	}
	if generation := w.set.Generation(); g.told < generation {
		layout := w.layoutLocked()
		messages, err = g.newLocked()
		messages = append(messages, notification(wire.Views, layout, nil))
		g.told = layout.Generation
	}
	return messages, false, err
}

// Leave implements sharing.Guest.
func (g *Guest) Leave() {
	w := g.owner
	w.mu.Lock()
	defer w.mu.Unlock()
	g.leaveLocked()
}

func (g *Guest) leaveLocked() {
	if g.gone {
		return
	}
	w := g.owner
	for d := range w.mu.pastOn {
		for t := range w.mu.past {
			one := g.countsLocked(d, t)
			w.mu.past[t].Add(&one)
			w.mu.pastOn[d].Add(&one)
		}
	}
	g.gone, g.live = true, false
	delete(w.mu.guests, g.number)
	delete(w.mu.regions.all, placeOf(g.memory))
	w.set.Devices[g.home].Device.Free(g.memory)
	g.wake() // ends send
	g.process.Close()
	w.o.Log.Info("client has left", slog.String("client", g.name))
}

// Lost implements sharing.Guest. Where the system cannot say when the process ends, its connection's end is taken for that.
func (g *Guest) Lost() {
	w := g.owner
	w.mu.Lock()
	defer w.mu.Unlock()
	g.lost = true
	if !g.live || !g.process.Visible() || !g.gone && g.board.Left() {
		g.leaveLocked()
	}
}

// Describe implements sharing.Owner.
func (w *Owner) Describe() []sharing.Description {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := []sharing.Description{}
	for _, g := range w.mu.guests {
		d := sharing.Description{Number: g.number, Name: g.name, Live: g.live}
		counted := g.totalsLocked()
		d.Gathers, d.Lookups, d.Hits = counted.Gathers, counted.Hits+counted.Misses(), counted.Hits
		d.HoldsFor = g.holdsLocked()
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b sharing.Description) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// notification returns a notice.
func notification(method string, body any, files []*os.File) *wire.Message {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("share: notice %s: %v", method, err)) // of plain structures
	}
	return &wire.Message{Method: method, Body: raw, Files: files}
}

func closeFiles(messages []*wire.Message) {
	for _, m := range messages {
		m.CloseFiles()
	}
}
