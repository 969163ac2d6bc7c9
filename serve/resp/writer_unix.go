//go:build unix

package resp

import (
	"net"
	"syscall"
)

// writer writes what a socket takes without waiting. Most replies fit: then no timer is needed, whose start costs more than the write.
type writer struct {
	raw  syscall.RawConn // nil: nothing is written
	once func(fd uintptr) bool
	b    []byte
	n    int
	err  error
}

func newWriter(c net.Conn) writer {
	s, ok := c.(syscall.Conn)
	if !ok {
		return writer{}
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return writer{}
	}
	return writer{raw: raw}
}

// write returns how much was written. That the socket takes nothing now is no error.
func (w *writer) write(b []byte) (int, error) {
	if w.raw == nil {
		return 0, nil
	}
	if w.once == nil {
		w.once = w.attempt
	}
	w.b, w.n, w.err = b, 0, nil
	err := w.raw.Write(w.once)
	w.b = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}

// attempt writes once. It is always done: the socket is not waited for.
func (w *writer) attempt(fd uintptr) bool {
	n, err := syscall.Write(int(fd), w.b)
	for err == syscall.EINTR {
		n, err = syscall.Write(int(fd), w.b)
	}
	if err != nil && err != syscall.EAGAIN {
		w.err = err
	}
	w.n = max(0, n)
	return true
}
