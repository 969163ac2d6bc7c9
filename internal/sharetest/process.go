//go:build linux

// Package sharetest tests device.Sharer with real processes: the test binary starts itself again as the process that allocates memory and as the
// one that reads it. The test packages of backends call Main in TestMain and then the functions named after what they test.
package sharetest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/eintr"
)

// Backend is what is tested.
type Backend struct {
	// Open opens a device, in the process of the test, whose role is "", and in those that it starts, whose roles are "owner", "reader" and "writer".
	Open func(role string) (device.Device, error)
	// Read returns the bytes of a buffer of device memory as kernels read them.
	Read func(d device.Device, b device.Buffer) ([]byte, error)
	// Write changes the first byte of device memory as kernels do.
	Write func(d device.Device, b device.Buffer) error
}

// role is the variable that says what a started process does.
const role = "TENSORCACHE_SHARETEST_ROLE"

// socketFD is the descriptor of the socket in a started process.
const socketFD = 3

// Main runs the tests, or, in a process that a test has started, its part. TestMain calls it.
func Main(m *testing.M, of Backend) {
	play := map[string]func(Backend) error{"owner": own, "reader": read, "writer": write}[os.Getenv(role)]
	if play == nil {
		os.Exit(m.Run())
	}
	if err := play(of); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process is a started process, whose lines the test reads and writes.
type process struct {
	*exec.Cmd
	lines *bufio.Reader
	in    io.WriteCloser
}

// start starts this binary in a role, with a socket. It is killed when the test ends.
func start(t testing.TB, as string, socket *os.File) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe)}
	p.Env = append(os.Environ(), role+"="+as)
	p.ExtraFiles = []*os.File{socket}
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewReader(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
	})
	return p
}

// line returns the next line of the process.
func (p *process) line(t testing.TB) string {
	t.Helper()
	s, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %q, error %v", p.Env[len(p.Env)-1], s, err)
	}
	return s[:len(s)-1]
}

// sockets returns the two ends of a socket.
func sockets(t testing.TB) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

// send sends buffers' sizes and descriptors.
func send(socket int, sizes []int64, files []*os.File) error {
	var message []byte
	var fds []int
	for i, f := range files {
		message = binary.LittleEndian.AppendUint64(message, uint64(sizes[i]))
		fds = append(fds, int(f.Fd()))
	}
	return eintr.Retry(func() error { return unix.Sendmsg(socket, message, unix.UnixRights(fds...), nil, 0) })
}

// receive returns what send has sent.
func receive(socket int) (sizes []int64, files []*os.File, err error) {
	message, control := make([]byte, 64), make([]byte, 256)
	var n, c int
	err = eintr.Retry(func() (err error) {
		n, c, _, _, err = unix.Recvmsg(socket, message, control, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("recvmsg: %w", err)
	}
	parts, err := unix.ParseSocketControlMessage(control[:c])
	if err != nil || len(parts) != 1 {
		return nil, nil, fmt.Errorf("message of %d bytes with %d parts: %w", n, len(parts), err)
	}
	fds, err := unix.ParseUnixRights(&parts[0])
	if err != nil {
		return nil, nil, err
	}
	for i, fd := range fds {
		sizes = append(sizes, int64(binary.LittleEndian.Uint64(message[8*i:])))
		files = append(files, os.NewFile(uintptr(fd), "received"))
	}
	return sizes, files, nil
}
