//go:build linux

package serve

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/internal/filelock"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// socket is a listening Unix socket, and the lock on its path.
type socket struct {
	*net.UnixListener
	path  string
	lock  *os.File
	close sync.Once
}

// Free returns an error if Listen could not listen at an address now, such as because another process does. A program that loads a cache for long
// asks before it does.
func Free(address string) error {
	_, lock, err := take(address)
	if err != nil {
		return err
	}
	return lock.Close()
}

// take returns the path of an address, and the lock on it. Whoever listens on a path holds a lock on PATH.lock, which the system drops with the
// process. So a socket file without a lock is one that was left behind, and is replaced.
func take(address string) (path string, lock *os.File, err error) {
	if path, err = wire.SocketPath(address); err != nil {
		return "", nil, err
	}
	if was, err := os.Lstat(path); err == nil && was.Mode()&os.ModeSocket == 0 {
		return "", nil, fmt.Errorf("serve: address (%s) must not be the path of a file", address)
	}
	if lock, err = os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600); errors.Is(err, os.ErrNotExist) {
		return "", nil, fmt.Errorf("serve: address (%s) must be in a folder that exists: %w", address, err)
	} else if err != nil {
		return "", nil, fmt.Errorf("serve: lock of %s: %w", address, err)
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := filelock.Lock(lock); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return "", nil, fmt.Errorf("serve: address (%s) must not be in use: another process listens there", address)
		}
		return "", nil, fmt.Errorf("serve: lock of %s: %w", address, err)
	}
	return path, lock, nil
}

// listen creates the socket of an address.
func listen(address string) (_ *socket, err error) {
	path, lock, err := take(address)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	// The mode is set before anybody can connect by the path.
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("serve: socket %s: %w", address, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("serve: socket %s: %w", address, err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(temporary, 0o600), os.Rename(temporary, path)); err != nil {
		os.Remove(temporary)
		l.Close()
		return nil, fmt.Errorf("serve: socket %s: %w", address, err)
	}
	return &socket{UnixListener: l, path: path, lock: lock}, nil
}

// Close removes the socket. Later calls return net.ErrClosed: the path may be another owner's by then.
func (s *socket) Close() error {
	err := net.ErrClosed
	s.close.Do(func() {
		os.Remove(s.path)
		err = s.UnixListener.Close()
		s.lock.Close()
	})
	return err
}
