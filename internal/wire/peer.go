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
	"time"
)

// Peer is the client's end of a connection: it sends requests and hands notices to a function. It is safe for concurrent use.
type Peer struct {
	conn   *Conn
	notice func(*Message)
	done   chan struct{} // closed when the connection has ended

	mu struct {
		sync.Mutex
		next    uint64
		waiting map[uint64]chan *Message
		err     error // why the connection ended
	}
}

var errEnded = errors.New("wire: the owner has ended the connection")

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

// maxPath is the longest path of a socket (sun_path), with room for the suffix that the owner creates it with.
const maxPath = 107 - len(".new")

// Dial connects to an owner, which must be of the same user, and greets it. notice is called with each notice in the order of their arrival, by one goroutine; it may be nil. It
// closes the message's files.
func Dial(ctx context.Context, address, name string, notice func(*Message)) (*Peer, Reception, error) {
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
	p := &Peer{conn: NewConn(c.(*net.UnixConn)), notice: notice, done: make(chan struct{})}
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
	if _, err := p.Call(ctx, Hello, Greeting{Version, name}, nil, &r); err != nil {
		p.Close()
		return nil, r, err
	}
	if r.Version != Version {
		p.Close()
		return nil, r, fmt.Errorf("wire: owner's version (%d) must be %d", r.Version, Version)
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
// ends first, the owner is told to end the request, and Call returns what it answers then, or the context's error.
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
		return nil, err
	}
	a, err := p.await(ctx, m.ID, answer)
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

// await waits for an answer.
func (p *Peer) await(ctx context.Context, id uint64, answer <-chan *Message) (*Message, error) {
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		note, _ := json.Marshal(CancelNotice{id})
		if err := p.conn.Write(&Message{Method: Cancel, Body: note}); err != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
	case <-p.done:
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
	case <-time.After(cancelWait):
		return nil, ctx.Err()
	}
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
			p.mu.err = fmt.Errorf("wire: connection to the owner has ended: %w", err)
			if errors.Is(err, io.EOF) {
				p.mu.err = errEnded
			}
			p.mu.Unlock()
			p.conn.Close()
			return
		}
		if m.Method != "" {
			p.notice(m)
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
