//go:build linux

package serve

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// process is the process at the other end of a connection.
type process struct {
	pid int      // 0 if it is not visible from here, as from another container
	fd  *os.File // pidfd, nil if the system has none
}

// processOf returns the process at the other end of a connection, or an error if it is not one of this process's user.
func processOf(c *net.UnixConn) (p process, err error) {
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
		return p, fmt.Errorf("serve: user of a client: %w", failed)
	}
	if own := os.Geteuid(); int(peer.Uid) != own {
		return p, fmt.Errorf("serve: client's user (%d) must be the owner's (%d)", peer.Uid, own)
	}
	if p.pid = int(peer.Pid); p.pid > 0 {
		if fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK); err == nil {
			p.fd = os.NewFile(uintptr(fd), "process") // a descriptor that does not block is polled by the runtime, without a thread
		}
	}
	return p, nil
}

// wait returns true when the process has ended, and false when close is called first or the system cannot say.
func (p process) wait() (ended bool) {
	if p.fd == nil {
		return false
	}
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		ended = n > 0
		return ended || err != nil && err != unix.EINTR
	})
	return err == nil && ended
}

// kill ends the process by SIGKILL.
func (p process) kill() error {
	if p.fd == nil {
		return errors.New("serve: process cannot be killed: it is not visible from here")
	}
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	return errors.Join(err, failed)
}

func (p process) close() {
	if p.fd != nil {
		p.fd.Close()
	}
}
