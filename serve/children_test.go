//go:build linux

package serve_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/serve"
)

// roles are what the test binary does as a child, by name. A role writes lines to stdout, and ends with an error or nil.
var roles = map[string]func(c *parent, args []string) error{}

const roleVariable = "TENSORCACHE_TEST_ROLE"

func TestMain(m *testing.M) {
	if role, ok := os.LookupEnv(roleVariable); ok {
		name, rest, _ := strings.Cut(role, " ")
		if err := roles[name](&parent{bufio.NewReader(os.Stdin)}, strings.Fields(rest)); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// parent is the test, as a child sees it.
type parent struct{ in *bufio.Reader }

// say writes a line.
func (p *parent) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// tell writes a value.
func (p *parent) tell(v any) {
	b, _ := json.Marshal(v)
	fmt.Println(string(b))
}

// own opens a cache, lets processes attach to it, and ends with the test's next line.
func (p *parent) own(address string, o cache.Options) error {
	c, err := cache.New(o)
	if err != nil {
		return err
	}
	if _, err := serve.Listen(c, serve.Options{Address: address}); err != nil {
		return err
	}
	p.say("ready")
	p.wait()
	return nil
}

// wait returns the next line of the test; ok is false once the test is gone.
func (p *parent) wait() (line string, ok bool) {
	line, err := p.in.ReadString('\n')
	return strings.TrimSpace(line), err == nil
}

// child is a process of a role.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a child, which is killed when the test ends.
func start(t testing.TB, role ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVariable+"="+strings.Join(role, " "))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(c.kill)
	return c
}

// line returns the child's next line.
func (c *child) line() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("child: %v", err)
	}
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "error ") {
		c.t.Fatalf("child: %s", line)
	}
	return line
}

// expect fails the test unless the child's next line is as given.
func (c *child) expect(want string) {
	c.t.Helper()
	if got := c.line(); got != want {
		c.t.Fatalf("child says %q, want %q", got, want)
	}
}

// say writes a line to the child.
func (c *child) say(line string) { fmt.Fprintln(c.in, line) }

// signal sends a signal, and for SIGSTOP waits until the child is stopped.
func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
	for s == syscall.SIGSTOP {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil {
			c.t.Fatal(err)
		}
		if after := stat[strings.LastIndexByte(string(stat), ')')+2]; after == 'T' {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// kill kills the child and waits for its end; a second call does nothing. The test keeps all children until it ends, so kill lets go of what they hold: 7 KiB each,
// which would pass for memory that the owner has lost.
func (c *child) kill() {
	if c.cmd == nil {
		return
	}
	c.cmd.Process.Kill()
	c.cmd.Wait()
	c.cmd, c.in, c.out = nil, nil, nil
}

// until fails the test unless a condition becomes true within a minute: machines are busy.
func until(t testing.TB, what string, true func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !true(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
