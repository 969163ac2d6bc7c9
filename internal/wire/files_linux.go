package wire

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// besideBytes is room for the control messages beside a header.
var besideBytes = unix.CmsgSpace(4 * MaxFiles)

// rightsOf returns the control message that sends files.
func rightsOf(files []*os.File) []byte {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return unix.UnixRights(fds...)
}

// filesOf returns the files of control messages, those before an error too. flags are those of recvmsg.
func filesOf(beside []byte, flags int) (files []*os.File, err error) {
	all, err := unix.ParseSocketControlMessage(beside)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		fds, err := unix.ParseUnixRights(&one)
		if err != nil {
			continue // not descriptors
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "shared memory"))
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return files, fmt.Errorf("descriptors must be at most %d, and this process must have room for them", MaxFiles)
	}
	return files, nil
}

// checkOwner returns an error unless the process that listens at the other end is of this process's user: what it shares is mapped, and decoded as
// it stands. In a folder for all, such as /tmp, another user could have taken the path.
func checkOwner(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("wire: user of the owner: %w", failed)
	}
	if own := os.Geteuid(); int(peer.Uid) != own {
		return fmt.Errorf("wire: owner's user (%d) must be this process's (%d)", peer.Uid, own)
	}
	return nil
}
