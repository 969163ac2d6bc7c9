package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Peer is the client's end of a connection: it sends requests and hands notices to a function. It is safe for concurrent use.
//
// No request waits for an owner that gives no sign of life: that is stopped, or cannot take the connection because it has no descriptors left. A request that is
// under way asks the owner for such a sign (Ping). The owner gives it beside its work: a request may take as long as that does, also if it hangs.
type Peer struct {
	conn    *Conn
	address string
	process int           // the owner's, 0 if it has none here
	timeout time.Duration // how long the owner may give no sign of life
	notice  func(*Message)
	done    chan struct{} // closed when the connection has ended
	// heard counts the signs of life. handling says that a notice is being handled, during which nothing is read.
	heard    atomic.Uint64
	handling atomic.Bool

	mu struct {
		sync.Mutex
		next    uint64
		waiting map[uint64]chan *Message
		err     error // why the connection ended
	}
}

var errEnded = errors.New("wire: the owner has ended the connection")

// DefaultTimeout is how long an owner may give no sign of life by default.
const DefaultTimeout = 10 * time.Second

// ErrSilent is wrapped by errors of requests to an owner that has given no sign of life for as long as Dial was told.
var ErrSilent = errors.New("it gives no sign of life: stopped, or out of file descriptors")

// owner says who does not answer.
func (p *Peer) owner() string {
	if p.process == 0 {
		return "owner at " + p.address
	}
	return fmt.Sprintf("owner at %s (process %d)", p.address, p.process)
}

// silent is the error of a request that has got no sign of life.
func (p *Peer) silent(method string) error {
	return fmt.Errorf("wire: %s has not answered %s within %v: %w", p.owner(), method, p.timeout, ErrSilent)
}

// SocketPath returns the path of an address "unix:PATH".
func SocketPath(address string) (string, error) {
	path, ok := strings.CutPrefix(address, "unix:")
	path = strings.TrimPrefix(path, "//")
	if !ok || path == "" {
		return "", fmt.Errorf("wire: address (%q) must be unix:PATH", address)
	}
	if len(path) > maxPath {
		return "", fmt.Errorf("wire: socket path (%d bytes) must have at most %d", len(path), maxPath)
	}
	return path, nil
}

// SplitTable returns an address without the table that it may name: "unix:PATH#TABLE".
func SplitTable(address string) (socket, table string) {
	socket, table, _ = strings.Cut(address, "#")
	return socket, table
}

// maxPath is the longest path of a socket (sun_path), with room for the suffix that the owner creates it with.
const maxPath = 107 - len(".new")

// Dial connects to an owner, which must be of the same user, and greets it. timeout is how long the owner may give no sign of life while a request waits, for
// this one and all that follow. notice is called with each notice in the order of their arrival, by one goroutine; it may be nil. It closes the message's files.
func Dial(ctx context.Context, address, name string, timeout time.Duration, notice func(*Message)) (*Peer, Reception, error) {
	var r Reception
	path, err := SocketPath(address)
	if err != nil {
		return nil, r, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, r, err
	}
	owner, err := ownerOf(c.(*net.UnixConn))
	if err != nil {
		c.Close()
		return nil, r, err
	}
	if notice == nil {
		notice = (*Message).CloseFiles
	}
	p := &Peer{conn: NewConn(c.(*net.UnixConn)), address: address, process: owner.PID, timeout: timeout, notice: notice, done: make(chan struct{})}
	p.conn.timeout = timeout
	p.mu.waiting = map[uint64]chan *Message{}
	go p.read()
	go func() { // a child of the owner's, by fork, may hold the connection open
		if owner.Wait() {
			p.Close()
		}
	}()
	go func() {
		<-p.done
		owner.Close()
	}()
	if _, err := p.Call(ctx, Hello, Greeting{Oldest, Version, name}, nil, &r); err != nil {
		p.Close()
		return nil, r, err
	}
	if r.Version < Oldest || r.Version > Version {
		p.Close()
		return nil, r, &VersionError{Owner: [2]int{r.Version, r.Version}, Client: [2]int{Oldest, Version}}
	}
	return p, r, nil
}

// Close ends the connection.
func (p *Peer) Close() { p.conn.Close() }

// Done returns a channel that is closed when the connection has ended. No notice is handled afterwards.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Err returns why the connection has ended, nil before.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.err
}

// Call sends a request and waits for its answer, whose body it reads into result unless that is nil. An error of the owner is an *Error. If ctx
// ends first, the owner is told to end the request, and Call returns what it answers then, or an error that wraps the context's. If the owner gives no sign of
// life, the error wraps ErrSilent, and the owner may still do what it was asked for.
func (p *Peer) Call(ctx context.Context, method string, body any, payload []byte, result any) (*Message, error) {
	m := &Message{Method: method, Payload: payload}
	if body != nil {
		var err error
		if m.Body, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("wire: request %s: %w", method, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer := make(chan *Message, 1)
	p.mu.Lock()
	if err := p.mu.err; err != nil {
		p.mu.Unlock()
		return nil, err
	}
	p.mu.next++
	m.ID = p.mu.next
	p.mu.waiting[m.ID] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.mu.waiting, m.ID)
		p.mu.Unlock()
	}()
	if err := p.conn.Write(m); err != nil {
		if p.conn.stuck.Load() {
			err = p.silent(method) // it does not even read
		}
		return nil, err
	}
	a, err := p.await(ctx, m, answer)
	switch {
	case err != nil:
		return nil, err
	case a.Error != nil:
		return a, a.Error
	case result != nil:
		return a, Decode(a.Body, result)
	}
	return a, nil
}

// await waits for the answer to a request.
func (p *Peer) await(ctx context.Context, m *Message, answer <-chan *Message) (*Message, error) {
	look := time.NewTicker(max(p.timeout/looks, 1))
	defer look.Stop()
	heard, quiet := p.heard.Load(), 0
	for waiting := true; waiting; {
		select {
		case a := <-answer:
			return a, nil
		case <-look.C:
			// Looks are counted, not time: a process that was stopped itself gives the owner as many.
			if now := p.heard.Load(); now != heard || p.handling.Load() {
				heard, quiet = now, 0
			} else if quiet++; quiet == looks {
				p.cancel(m.ID)
				return nil, p.silent(m.Method)
			}
			p.ping()
		case <-ctx.Done():
			p.cancel(m.ID)
			waiting = false
		case <-p.done:
			waiting = false
		}
	}
	select { // the owner answers a cancelled request at once, unless it hangs
	case a := <-answer:
		return a, nil
	case <-p.done:
		select {
		case a := <-answer: // it came before the end
			return a, nil
		default:
			return nil, p.Err()
		}
	case <-time.After(min(cancelWait, p.timeout)):
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && p.heard.Load() == heard {
			return nil, fmt.Errorf("wire: %s has not answered %s in time: %w", p.owner(), m.Method, ctx.Err())
		}
		return nil, ctx.Err()
	}
}

// looks is how often a request looks for signs of life in the time that the owner may give none.
const looks = 4

// ping asks for a sign of life. Like cancel it does not wait until the owner reads: a write that takes too long ends the connection.
func (p *Peer) ping() {
	p.mu.Lock()
	p.mu.next++
	m := &Message{ID: p.mu.next, Method: Ping}
	p.mu.Unlock()
	go p.conn.Write(m)
}

// cancel tells the owner to end a request.
func (p *Peer) cancel(id uint64) {
	note, _ := json.Marshal(CancelNotice{id})
	go p.conn.Write(&Message{Method: Cancel, Body: note})
}

// cancelWait is how long Call waits for the answer to a request that it has cancelled.
const cancelWait = 2 * time.Second

// read hands on answers and notices until the connection ends.
func (p *Peer) read() {
	defer close(p.done)
	for {
		m, err := p.conn.Read(MaxJSON + MaxPayload)
		if err != nil {
			p.mu.Lock()
			switch p.mu.err = fmt.Errorf("wire: connection to the owner has ended: %w", err); {
			case errors.Is(err, io.EOF):
				p.mu.err = errEnded
			case p.conn.stuck.Load():
				p.mu.err = p.silent("requests")
			}
			p.mu.Unlock()
			p.conn.Close()
			return
		}
		p.heard.Add(1)
		if m.Method != "" {
			p.handling.Store(true)
			p.notice(m)
			p.heard.Add(1)
			p.handling.Store(false)
			continue
		}
		m.CloseFiles()
		p.mu.Lock()
		answer := p.mu.waiting[m.ID]
		delete(p.mu.waiting, m.ID)
		p.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	}
}
