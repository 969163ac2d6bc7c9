package clients

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

// Client implements sharing.Client. Owner.mu guards the fields without another rule.
type Client struct {
	owner   *Owner
	number  uint64
	process sharing.Process
	name    string
	lanes   int // of each device
	home    int // the device by which its board was allocated
	memory  device.Buffer
	board   *board.Board // readable until gone
	boardID uint64

	sent map[uint64]bool // regions that the client has been sent
	told uint64          // generation of the last layout that it was sent
	live bool            // its batches may run
	lost bool            // its connection has ended
	gone bool
	kick chan struct{} // wakes the sender, which looks for a newer layout

	stall  stall
	killed bool

	since   time.Time
	counted [][]board.Totals // by device and table, as read last
	freed   [][]board.Totals // by device and table: of captured batches that have given up their places
	doubted bool             // its counters have been nonsense
}

// Admit implements sharing.Owner. It closes p, after an error too.
func (w *Owner) Admit(ctx context.Context, p sharing.Process, lanes int, send func(*wire.Message) error) (sharing.Client, *wire.Welcome, error) {
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
	var memory device.Buffer
	if w.set.Kept != nil { // the next owner knows by it that the client reads on
		memory, err = w.set.Kept.Reader(w.set.Devices[home].Device, p.String(), shape.Bytes(), boardName)
	} else {
		memory, err = sharer.AllocSharedHost(nil, shape.Bytes(), boardName)
	}
	if err != nil {
		p.Close()
		return nil, nil, err
	}
	c := &Client{
		owner: w, process: p, name: p.String(), lanes: lanes, home: home, memory: memory, board: board.New(memory.Bytes(), shape), sent: map[uint64]bool{},
		kick: make(chan struct{}, 1), since: time.Now(),
	}
	for range w.set.Devices {
		c.counted, c.freed = append(c.counted, make([]board.Totals, len(w.set.Tables))), append(c.freed, make([]board.Totals, len(w.set.Tables)))
	}
	welcome, messages, err := w.enter(c)
	defer closeFiles(messages)
	for _, m := range messages {
		if err == nil {
			err = send(m)
		}
	}
	if err != nil {
		c.Leave()
		return nil, nil, err
	}
	w.tasks.Go(func() { c.send(send) })
	go func() { // not a task: it waits for a process that may outlive the cache
		if p.Wait() {
			c.Leave()
		}
	}()
	return c, welcome, nil
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

// enter makes a client known, and returns its welcome with the messages that bring the memory.
func (w *Owner) enter(c *Client) (*wire.Welcome, []*wire.Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closed {
		w.set.Devices[c.home].Device.Free(c.memory)
		c.process.Close()
		c.gone = true
		return nil, nil, errClosed
	}
	w.mu.last++
	c.number = w.mu.last
	w.mu.clients[c.number] = c
	r := &w.mu.regions
	c.boardID = r.ref(c.memory, c.home, true, true, boardName, forever)
	welcome := &wire.Welcome{
		Client: c.number, Tables: w.tables, Lanes: c.lanes, Captures: captures, Sampled: w.sampled, Views: w.layoutLocked(), Board: c.boardID,
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
	c.told = welcome.Views.Generation
	messages, err := c.newLocked()
	return welcome, messages, err
}

// Ready implements sharing.Client.
func (c *Client) Ready() bool {
	w := c.owner
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.gone {
		return false
	}
	if c.board.Generation() == w.set.Generation() {
		c.live = true
		return true
	}
	c.wake()
	return false
}

// wake wakes the sender, which sends the client the current layout.
func (c *Client) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// send sends layouts until the client is gone or cannot be reached.
func (c *Client) send(send func(*wire.Message) error) {
	w := c.owner
	for {
		select {
		case <-c.kick:
		case <-w.life:
			return
		}
		messages, gone, err := c.news()
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
			w.o.Log.Warn("client cannot be told of new memory", slog.String("client", c.name), slog.Any("error", err))
			return
		}
	}
}

// news returns the messages that bring the current layout, none if the client has it. gone says that the client needs none any more.
func (c *Client) news() (messages []*wire.Message, gone bool, err error) {
	w := c.owner
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.gone {
		return nil, true, nil
	}
	if generation := w.set.Generation(); c.told < generation {
		layout := w.layoutLocked()
		messages, err = c.newLocked()
		messages = append(messages, notification(wire.Views, layout, nil))
		c.told = layout.Generation
	}
	return messages, false, err
}

// Leave implements sharing.Client.
func (c *Client) Leave() {
	w := c.owner
	w.mu.Lock()
	defer w.mu.Unlock()
	c.leaveLocked()
}

func (c *Client) leaveLocked() {
	if c.gone {
		return
	}
	w := c.owner
	for d := range w.mu.pastOn {
		for t := range w.mu.past {
			one := c.countsLocked(d, t)
			w.mu.past[t].Add(&one)
			w.mu.pastOn[d].Add(&one)
		}
	}
	c.gone, c.live = true, false
	delete(w.mu.clients, c.number)
	delete(w.mu.regions.all, placeOf(c.memory))
	w.set.Devices[c.home].Device.Free(c.memory)
	w.set.Kept.Settle()
	c.wake() // ends send
	c.process.Close()
	w.o.Log.Info("client has left", slog.String("client", c.name))
}

// Lost implements sharing.Client. Where the system cannot say when the process ends, its connection's end is taken for that.
func (c *Client) Lost() {
	w := c.owner
	w.mu.Lock()
	defer w.mu.Unlock()
	c.lost = true
	if !c.live || !c.process.Visible() || !c.gone && c.board.Left() {
		c.leaveLocked()
	}
}

// Describe implements sharing.Owner.
func (w *Owner) Describe() []sharing.Description {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := []sharing.Description{}
	for _, c := range w.mu.clients {
		d := sharing.Description{Number: c.number, Name: c.name, Live: c.live}
		counted := c.totalsLocked()
		d.Gathers, d.Lookups, d.Hits = counted.Gathers, counted.Hits+counted.Misses(), counted.Hits
		d.HoldsFor = c.holdsLocked()
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b sharing.Description) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// notification returns a notice.
func notification(method string, body any, files []*os.File) *wire.Message {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("clients: notice %s: %v", method, err)) // of plain structures
	}
	return &wire.Message{Method: method, Body: raw, Files: files}
}

func closeFiles(messages []*wire.Message) {
	for _, m := range messages {
		m.CloseFiles()
	}
}
