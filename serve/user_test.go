//go:build linux

package serve_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve"
)

func init() {
	// dial ADDRESS: says what came of connecting.
	roles["dial"] = func(p *parent, args []string) error {
		d, err := serve.Dial(context.Background(), args[0], "dialler")
		if err != nil {
			p.say("refused: %v", err)
			return nil
		}
		d.Close()
		p.say("connected")
		return nil
	}
	// greet PATH: greets whoever listens there, without a look at who that is, and says what it answers.
	roles["greet"] = func(p *parent, args []string) error {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: args[0], Net: "unix"})
		if err != nil {
			return err
		}
		defer c.Close()
		w := wire.NewConn(c)
		if err := w.Write(&wire.Message{ID: 1, Method: wire.Hello, Body: fmt.Appendf(nil, `{"version":%d}`, wire.Version)}); err != nil {
			return err
		}
		m, err := w.Read(wire.MaxJSON)
		if err != nil {
			return err
		}
		p.say("%v", m.Error)
		return nil
	}
	// pose PATH: listens as an owner would, for anybody, and takes one connection.
	roles["pose"] = func(p *parent, args []string) error {
		l, err := net.Listen("unix", args[0])
		if err != nil {
			return err
		}
		if err := os.Chmod(args[0], 0o777); err != nil {
			return err
		}
		p.say("listens")
		c, err := l.Accept()
		if err != nil {
			return err
		}
		defer c.Close()
		w := wire.NewConn(c.(*net.UnixConn))
		m, err := w.Read(wire.MaxJSON)
		if err != nil {
			p.say("not greeted: %v", err)
			return nil
		}
		p.say("greeted")
		return w.Write(&wire.Message{ID: m.ID, Body: fmt.Appendf(nil, `{"version":%d}`, wire.Version)})
	}
}

// everybodys returns a folder that every user can write to.
func everybodys(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	folder, err := os.MkdirTemp("", "serve")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	return folder
}

// stranger returns a command that runs a role as another user.
func stranger(t *testing.T, folder, role string) *exec.Cmd {
	t.Helper()
	binary := filepath.Join(folder, "test")
	if _, err := os.Stat(binary); err != nil {
		own, err := os.ReadFile(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(binary, own, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(binary)
	cmd.Dir, cmd.Env = "/", []string{roleVariable + "=" + role}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// TestServer_OtherUser: a process of another user cannot open the socket, and would be refused if it could.
func TestServer_OtherUser(t *testing.T) {
	folder := everybodys(t)
	path := filepath.Join(folder, "s")
	listen(t, open(t, 10, nil), serve.Options{Address: "unix:" + path})
	for _, c := range []struct {
		mode       os.FileMode
		role, want string
	}{
		{0o600, "dial unix:" + path, "permission denied"},
		{0o666, "dial unix:" + path, "wire: owner's user (0) must be this process's (65534)"},
		{0o666, "greet " + path, "serve: client's user (65534) must be the owner's (0)"},
	} {
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		out, err := stranger(t, folder, c.role).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v: %s, want %s", c.role, err, out, c.want)
		}
	}
}

// TestDial_OtherUser: a client has nothing to do with a process of another user that has taken the path of the owner's socket.
func TestDial_OtherUser(t *testing.T) {
	folder := everybodys(t)
	path := filepath.Join(folder, "s")
	cmd := stranger(t, folder, "pose "+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	n, err := out.Read(line)
	if err != nil || !bytes.HasPrefix(line[:n], []byte("listens")) {
		t.Fatal(err, string(line[:n]))
	}
	if d, err := serve.Dial(ctx, "unix:"+path, "test"); err == nil || !strings.Contains(err.Error(), "wire: owner's user (65534) must be this process's (0)") {
		t.Errorf("%v, %v", d, err)
	}
	if n, err = out.Read(line); err != nil || !bytes.HasPrefix(line[:n], []byte("not greeted")) {
		t.Errorf("%v: %s", err, line[:n])
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
