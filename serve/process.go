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
	name string
	pid  int      // 0 if it has none here, as from another container
	fd   *os.File // pidfd, nil if the system has none
}

// String implements sharing.Process.
func (p process) String() string {
	if p.pid == 0 {
		return p.name
	}
	return fmt.Sprintf("%s (process %d)", p.name, p.pid)
}

// Visible implements sharing.Process.
func (p process) Visible() bool { return p.fd != nil }

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
	p.pid = int(peer.Pid)
	fd := -1
	raw.Control(func(socket uintptr) {
		// From Linux 6.5 on: also of a process that has no number here, and of no other process that has been given its number since.
		if fd, failed = unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD); failed != nil {
			fd = -1
		}
	})
	if fd < 0 && p.pid > 0 {
		if fd, err = unix.PidfdOpen(p.pid, 0); errors.Is(err, unix.ESRCH) {
			return p, fmt.Errorf("serve: client's process (%d) has ended", p.pid)
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

// Wait implements sharing.Process.
func (p process) Wait() (ended bool) {
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

// Kill implements sharing.Process, by SIGKILL.
func (p process) Kill() error {
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

// Close implements sharing.Process.
func (p process) Close() {
	if p.fd != nil {
		p.fd.Close()
	}
}
