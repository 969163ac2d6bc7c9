package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxFiles is the most file descriptors of a frame.
	MaxFiles = 64
	// MaxJSON is the most bytes of a frame's JSON object, and MaxPayload of its payload.
	MaxJSON    = 16 << 20
	MaxPayload = 8 << 20

	// writeTimeout is how long a frame may take to be sent, unless the connection has a time-out of its own. A process that reads nothing for so long
	// is stopped or broken.
	writeTimeout = 30 * time.Second

	headerBytes = 16
	magic       = "TCS1"
)

// ErrFrame is wrapped by errors for bytes that are no frame. The connection cannot be used any more.
var ErrFrame = errors.New("wire: bad frame")

// ErrTooLong is wrapped by errors for messages that are longer than a frame may be. Nothing has been sent.
var ErrTooLong = errors.New("wire: message too long")

// Conn is a connection. One goroutine at a time may read; writing is safe for concurrent use.
type Conn struct {
	c       *net.UnixConn
	timeout time.Duration // how long a frame may take to be sent
	write   sync.Mutex
	stuck   atomic.Bool // a frame took longer than that to be sent, and the connection has been closed
}

// NewConn returns a connection over a socket, which Close closes.
func NewConn(c *net.UnixConn) *Conn { return &Conn{c: c, timeout: writeTimeout} }

// Socket returns the socket.
func (c *Conn) Socket() *net.UnixConn { return c.c }

// Close closes the socket. Reads and writes under way return errors.
func (c *Conn) Close() error { return c.c.Close() }

// Write sends a message. The files stay the caller's. After an error of the socket the connection is closed.
func (c *Conn) Write(m *Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("wire: message %s: %w", m.Method, err)
	}
	switch {
	case len(body) > MaxJSON:
		return fmt.Errorf("%w: JSON (%d bytes) must have at most %d", ErrTooLong, len(body), MaxJSON)
	case len(m.Payload) > MaxPayload:
		return fmt.Errorf("%w: payload (%d bytes) must have at most %d", ErrTooLong, len(m.Payload), MaxPayload)
	case len(m.Files) > MaxFiles:
		return fmt.Errorf("wire: descriptors (%d) must be at most %d", len(m.Files), MaxFiles)
	}
	frame := make([]byte, headerBytes, headerBytes+len(body))
	copy(frame, magic)
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(m.Files)))
	binary.LittleEndian.PutUint32(frame[8:], uint32(len(body)))
	binary.LittleEndian.PutUint32(frame[12:], uint32(len(m.Payload)))
	frame = append(frame, body...)
	c.write.Lock()
	defer c.write.Unlock()
	c.c.SetWriteDeadline(time.Now().Add(c.timeout))
	if err := c.send(frame, m); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) { // writers that wait find the connection closed: that is no other reason
			c.stuck.Store(true)
		}
		c.c.Close() // a part of the frame may have been sent
		return err
	}
	return nil
}

// send sends a frame. REQUIRES: c.write is locked.
func (c *Conn) send(frame []byte, m *Message) error {
	if len(m.Files) > 0 {
		n, _, err := c.c.WriteMsgUnix(frame, rightsOf(m.Files), nil)
		if err != nil {
			return err
		}
		frame = frame[n:]
	}
	for _, b := range [][]byte{frame, m.Payload} {
		if len(b) == 0 {
			continue // writing nothing fails, too, where the other end has closed the connection
		}
		if _, err := c.c.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// Read returns the next message, whose JSON object and payload have at most so many bytes together. The caller closes its files. At the end of
// the connection the error is io.EOF; errors for bytes that are no frame wrap ErrFrame.
func (c *Conn) Read(limit int) (_ *Message, err error) {
	m := &Message{}
	defer func() {
		if err != nil {
			m.CloseFiles()
		}
	}()
	var header [headerBytes]byte
	if err := c.readHeader(header[:], m); err != nil {
		return nil, err
	}
	files, body, payload := binary.LittleEndian.Uint32(header[4:]), binary.LittleEndian.Uint32(header[8:]), binary.LittleEndian.Uint32(header[12:])
	switch {
	case string(header[:4]) != magic:
		return nil, fmt.Errorf("%w: it begins with %q, not %q", ErrFrame, header[:4], magic)
	case body > MaxJSON || payload > MaxPayload || uint64(body)+uint64(payload) > uint64(limit):
		return nil, fmt.Errorf("%w: JSON (%d bytes) and payload (%d) must have at most %d", ErrFrame, body, payload, limit)
	case int(files) != len(m.Files):
		return nil, fmt.Errorf("%w: descriptors (%d) must be the %d that came with it", ErrFrame, files, len(m.Files))
	}
	rest, err := c.readAll(int(body) + int(payload))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(rest[:body], m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	m.Payload = rest[body:]
	return m, nil
}

// firstRead is the most bytes for which memory is allocated before any of them has come.
const firstRead = 64 << 10

// readAll reads n bytes. It allocates little more than twice what has come: a length that is only announced costs nothing.
func (c *Conn) readAll(n int) (all []byte, err error) {
	for len(all) < n {
		was := len(all)
		all = slices.Grow(all, min(n-was, max(firstRead, was)))
		all = all[:min(n, cap(all))]
		if _, err := io.ReadFull(c.c, all[was:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return all, nil
}

// readHeader reads the header of a frame with the descriptors that come beside it.
func (c *Conn) readHeader(header []byte, m *Message) error {
	beside := make([]byte, besideBytes)
	for got := 0; got < len(header); {
		n, sent, flags, _, err := c.c.ReadMsgUnix(header[got:], beside)
		files, failed := filesOf(beside[:sent], flags)
		m.Files = append(m.Files, files...)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case failed != nil:
			return fmt.Errorf("%w: %w", ErrFrame, failed)
		case n == 0 && got == 0:
			return io.EOF
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		got += n
	}
	return nil
}
