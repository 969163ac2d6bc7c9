//go:build linux

package serve_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
}

// TestServer_OtherUser: a process of another user cannot open the socket, and would be refused if it could.
func TestServer_OtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	folder, err := os.MkdirTemp("", "serve")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	binary := filepath.Join(folder, "test")
	own, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "s")
	s := listen(t, open(t, 10, nil), serve.Options{Address: "unix:" + path})
	for _, c := range []struct {
		mode os.FileMode
		want string
	}{{0o600, "permission denied"}, {0o666, "serve: client's user (65534) must be the owner's (0)"}} {
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary)
		cmd.Dir, cmd.Env = "/", []string{roleVariable + "=dial " + s.Address()}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: %s, want %s", err, out, c.want)
		}
	}
}
