package wire

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/internal/eintr"
)

// Process is the process at the other end of a connection.
type Process struct {
	PID int      // 0 if it has none here, as from another container
	UID int      // its user
	fd  *os.File // pidfd, nil if the system has none
}

// ErrProcessEnded is wrapped by ProcessOf's error if the process has ended.
var ErrProcessEnded = errors.New("wire: process has ended")

// ProcessOf returns the process at the other end of a connection.
func ProcessOf(c *net.UnixConn) (p Process, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return p, err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return p, err
	}
	if failed != nil {
		return p, failed
	}
	p.PID, p.UID = int(peer.Pid), int(peer.Uid)
	fd := -1
	raw.Control(func(socket uintptr) {
		// From Linux 6.5 on: also of a process that has no number here, and of no other process that has been given its number since.
		if fd, failed = unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD); failed != nil {
			fd = -1
		}
	})
	if fd < 0 && p.PID > 0 {
		if fd, err = unix.PidfdOpen(p.PID, 0); errors.Is(err, unix.ESRCH) {
			return p, fmt.Errorf("%w (process %d)", ErrProcessEnded, p.PID)
		} else if err != nil {
			fd = -1
		}
	}
	if fd >= 0 {
		unix.SetNonblock(fd, true) // then the runtime polls it, without a thread
		p.fd = os.NewFile(uintptr(fd), "process")
	}
	return p, nil
}

// ownerOf returns the process that listens at the other end, or an error unless it is one of this process's user: what it shares is mapped, and decoded as it
// stands. In a folder for all, such as /tmp, another user could have taken the path.
func ownerOf(c *net.UnixConn) (Process, error) {
	p, err := ProcessOf(c)
	if err != nil {
		return p, fmt.Errorf("wire: owner: %w", err)
	}
	if own := os.Geteuid(); p.UID != own {
		p.Close()
		return p, fmt.Errorf("wire: owner's user (%d) must be this process's (%d)", p.UID, own)
	}
	return p, nil
}

// Visible says whether the system lets this process know when that process ends.
func (p Process) Visible() bool { return p.fd != nil }

// Wait returns true when the process has ended. It returns false if the process is not visible, or after Close.
func (p Process) Wait() (ended bool) {
	if p.fd == nil {
		return false
	}
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		err := eintr.Retry(func() error {
			n, err := unix.Poll(poll, 0)
			ended = n > 0
			return err
		})
		return ended || err != nil
	})
	return err == nil && ended
}

// Kill ends the process by SIGKILL.
func (p Process) Kill() error {
	if p.fd == nil {
		return errors.New("wire: process cannot be killed: it is not visible from here")
	}
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	return errors.Join(err, failed)
}

// Close is called when the process is not asked about any more.
func (p Process) Close() {
	if p.fd != nil {
		p.fd.Close()
	}
}
