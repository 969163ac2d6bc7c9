package wire

import (
	"fmt"
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
