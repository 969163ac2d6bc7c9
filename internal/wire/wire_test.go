//go:build linux

package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns two ends of a connection.
func pair(t testing.TB) (a, b *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []**Conn{&a, &b} {
		f := os.NewFile(uintptr(fds[i]), "socket")
		n, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		*c = NewConn(n.(*net.UnixConn))
		t.Cleanup(func() { (*c).Close() })
	}
	return a, b
}

func TestConn_Messages(t *testing.T) {
	a, b := pair(t)
	var files []*os.File
	for i := range 3 {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "test")
		defer f.Close()
		f.WriteString(strings.Repeat("x", i))
		files = append(files, f)
	}
	large := bytes.Repeat([]byte{7}, MaxPayload)
	go func() {
		a.Write(&Message{ID: 1, Method: "one", Payload: large})
		a.Write(&Message{Method: "two", Body: []byte(`{"x":1}`), Files: files})
		a.Write(&Message{Method: "three"})
		a.Close()
	}()
	m, err := b.Read(MaxJSON + MaxPayload)
	if err != nil || m.ID != 1 || m.Method != "one" || !bytes.Equal(m.Payload, large) || len(m.Files) != 0 {
		t.Fatal(err)
	}
	m, err = b.Read(MaxJSON)
	if err != nil || m.Method != "two" || string(m.Body) != `{"x":1}` || len(m.Files) != 3 {
		t.Fatal(err)
	}
	for i, f := range m.Files {
		if s, err := f.Stat(); err != nil || s.Size() != int64(i) {
			t.Errorf("descriptor %d: %v, %d bytes", i, err, s.Size())
		}
	}
	m.CloseFiles()
	if m, err = b.Read(MaxJSON); err != nil || m.Method != "three" || len(m.Files) != 0 {
		t.Fatal(err)
	}
	if _, err = b.Read(MaxJSON); err != io.EOF {
		t.Error(err)
	}
}

func TestConn_Limits(t *testing.T) {
	a, b := pair(t)
	for _, m := range []*Message{
		{Payload: make([]byte, MaxPayload+1)}, {Files: make([]*os.File, MaxFiles+1)}, {Method: strings.Repeat("x", MaxJSON)},
	} {
		if err := a.Write(m); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Error(err)
		}
	}
	go a.Write(&Message{Method: "x", Payload: make([]byte, 100)})
	if _, err := b.Read(100); !errors.Is(err, ErrFrame) || !strings.Contains(err.Error(), "must have at most 100") {
		t.Error(err)
	}
}

// TestPeer_Ends: calls under way return when the owner is gone, and when their context has ended and the owner does not answer.
func TestPeer_Ends(t *testing.T) {
	path := t.TempDir() + "/s"
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan *Conn, 1)
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		o := NewConn(c)
		m, _ := o.Read(MaxJSON)
		o.Write(&Message{ID: m.ID, Body: fmt.Appendf(nil, `{"version":%d}`, Version)})
		accepted <- o
	}()
	p, _, err := Dial(context.Background(), "unix:"+path, "test", DefaultTimeout, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	o := <-accepted
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Call(short, "slow", nil, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	ended := make(chan error)
	go func() {
		_, err := p.Call(context.Background(), "never", nil, nil, nil)
		ended <- err
	}()
	for m := new(Message); m.Method != "never"; {
		if m, err = o.Read(MaxJSON); err != nil {
			t.Fatal(err)
		}
	}
	o.Close()
	if err := <-ended; err == nil || err.Error() != "wire: the owner has ended the connection" {
		t.Error(err)
	}
	if _, err := p.Call(context.Background(), "late", nil, nil, nil); err == nil {
		t.Error("a call on an ended connection was answered")
	}
}

// FuzzConn_Read: any bytes are a message or an error, and the memory for them is bounded.
func FuzzConn_Read(f *testing.F) {
	f.Add([]byte("TCS1\x00\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00{}abc"))
	f.Add([]byte("TCS1\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Add([]byte("TCS1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, y := pair(t)
		go func() {
			x.Socket().Write(b)
			x.Close()
		}()
		for {
			m, err := y.Read(1 << 16)
			if err != nil {
				break
			}
			if len(m.Payload)+len(m.Body) > 1<<16 {
				t.Fatalf("%d bytes", len(m.Payload))
			}
			m.CloseFiles()
		}
	})
}

// TestConn_Announced: a length that is announced costs no memory before the bytes come.
func TestConn_Announced(t *testing.T) {
	a, b := pair(t)
	header := append([]byte(magic), make([]byte, 12)...)
	binary.LittleEndian.PutUint32(header[8:], MaxJSON)
	binary.LittleEndian.PutUint32(header[12:], MaxPayload)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := a.c.Write(append(header, make([]byte, 100<<10)...)); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if _, err := b.Read(MaxJSON + MaxPayload); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes are allocated for %d that came", n, 100<<10)
	}
}
