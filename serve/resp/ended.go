package resp

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/internal/throttle"
)

// Errors that end a connection, beside errProtocol and errEvicted.
var (
	errFull       = errors.New("resp: too many clients")
	errUnread     = errors.New("resp: client takes no replies")
	errHTTP       = errors.New("resp: client speaks HTTP")
	errLate       = fmt.Errorf("resp: client has not logged in within %v", loginTime)
	errIdle       = errors.New("resp: client has sent nothing for --resp-timeout")
	errKilled     = errors.New("resp: killed by CLIENT KILL")
	errRevoked    = errors.New("resp: user is no longer in --resp-users")
	errIncomplete = errors.New("resp: reply cannot be completed")
)

// reason is why the server refused or ended a connection.
type reason int

const (
	full reason = iota
	evicted
	unread
	http
	protocol
	late
	incomplete
	idle
	killed
	revoked
	reasons // how many there are
)

// reasonNames are those of metrics.
var reasonNames = [reasons]string{"clients", "memory", "unread", "http", "protocol", "login", "incomplete", "idle", "killed", "revoked"}

// endings counts connections that the server refused or ended, and records them in the log at a limited rate for each reason.
type endings struct {
	counts [reasons]atomic.Int64
	logs   [reasons]throttle.Log
}

// of returns how many connections ended for a reason.
func (e *endings) of(r reason) int64 { return e.counts[r].Load() }

// reasonOf returns why the server ended a connection. It is false if it was not the server that ended it.
func reasonOf(err error) (reason, bool) {
	if _, ok := errors.AsType[errEvicted](err); ok {
		return evicted, true
	}
	if _, ok := errors.AsType[errProtocol](err); ok {
		return protocol, true
	}
	for r, sentinel := range map[reason]error{unread: errUnread, http: errHTTP, late: errLate, incomplete: errIncomplete, idle: errIdle, killed: errKilled, revoked: errRevoked} {
		if errors.Is(err, sentinel) {
			return r, true
		}
	}
	return 0, false
}

// ended counts and logs why a connection ends.
func (s *Server) ended(c *conn, err error) {
	if err == nil || errors.Is(err, io.EOF) {
		return
	}
	r, ours := reasonOf(err)
	if !ours {
		s.o.Logger.Debug("resp: connection ended", c.from(), slog.Any("error", err))
		return
	}
	level := slog.LevelWarn
	if r == protocol || r == late || r == idle || r == killed {
		level = slog.LevelInfo
	}
	s.cutOff(r, level, c.from(), slog.Any("error", err))
}

func (s *Server) cutOff(r reason, level slog.Level, attrs ...slog.Attr) {
	s.endings.counts[r].Add(1)
	s.endings.logs[r].Record(s.o.Logger, level, "resp: client cut off", attrs...)
}
