package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asCommand makes the test binary behave as tensorcached.
const asCommand = "TENSORCACHED_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience bounds every step; the machine may be busy.
const patience = time.Minute

// command returns tensorcached, not started. It is killed when the test ends.
func command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && !slices.Contains(args, "--lame-duck") { // no load balancer looks on
		args = append([]string{"--lame-duck", "0s"}, args...)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

// runs runs the command to its end.
func runs(t testing.TB, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := command(t, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Fatal(err)
		}
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// process is a tensorcached under way.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	ready string // the line it printed
	http  string // http://HOST:PORT/
	resp  string // HOST:PORT
	ended chan error
	log   struct {
		sync.Mutex
		bytes.Buffer
	}
}

// Write takes the log.
func (p *process) Write(b []byte) (int, error) {
	p.log.Lock()
	defer p.log.Unlock()
	return p.log.Buffer.Write(b)
}

func (p *process) logged() string {
	p.log.Lock()
	defer p.log.Unlock()
	return p.log.String()
}

// launch starts a command and waits until it is ready.
func launch(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, ended: make(chan error, 1)}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = p
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 16)
	go func() {
		s := bufio.NewScanner(out)
		for s.Scan() {
			lines <- s.Text()
		}
		close(lines)
		p.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			<-p.ended
		}
	})
	select {
	case line, ok := <-lines:
		if !ok {
			t.Fatalf("it ended: %v\n%s", <-p.ended, p.logged())
		}
		p.ready = line
	case <-time.After(patience):
		t.Fatalf("it is not ready:\n%s", p.logged())
	}
	if m := regexp.MustCompile(`http://[^/]+/`).FindString(p.ready); m != "" {
		p.http = m
	}
	if m := regexp.MustCompile(`resp (\S+?)(,|$)`).FindStringSubmatch(p.ready); m != nil {
		p.resp = m[1]
	}
	return p
}

// start starts tensorcached on the host backend.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	return launch(t, command(t, append([]string{"--device", "host"}, args...)...))
}

// signal sends a signal.
func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait returns the exit status.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.signal(syscall.SIGQUIT)
		time.Sleep(time.Second)
		p.t.Fatalf("it does not end:\n%s", p.logged())
	}
	return -1
}

// until waits for a condition.
func (p *process) until(what string, is func() bool) {
	p.t.Helper()
	for begun := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			p.t.Fatalf("%s: not within %v\n%s", what, patience, p.logged())
		}
	}
}

// get returns the answer to an HTTP request.
func (p *process) get(path string) (status int, body string) {
	p.t.Helper()
	r, err := http.Get(p.http + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// socket returns the --listen that it printed.
func (p *process) socket() string { return regexp.MustCompile(`unix:[^ ,]+`).FindString(p.ready) }

// stats returns /stats.
func (p *process) stats() (s struct {
	Clients       *int
	GPUMemory     int64 `json:"gpu_memory"`
	RestoredRows  int64 `json:"restored_rows"`
	Lookups, Hits int64
	Refresh       struct{ Cycles int64 }
	Tables        []struct {
		Name       string
		Rows       int64
		RowBytes   int   `json:"row_bytes"`
		RowsCached int64 `json:"rows_cached"`
	}
}) {
	p.t.Helper()
	status, body := p.get("stats")
	if status != http.StatusOK {
		p.t.Fatalf("/stats: %d %s", status, body)
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// inline sends lines to the RESP listener and returns what it answers until it closes the connection.
func (p *process) inline(lines ...string) string {
	p.t.Helper()
	c, err := net.Dial("tcp", p.resp)
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, strings.Join(append(lines, "QUIT"), "\r\n")+"\r\n")
	b, err := io.ReadAll(c)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// write writes a file to a folder of the test and returns its path.
func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// features returns an .npy file of int32: row r has r*columns, r*columns + 1 and so on.
func features(t testing.TB, name string, rows, columns int) string {
	t.Helper()
	head := fmt.Sprintf("{'descr': '<i4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns)
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), byte(len(head)>>8))
	b = append(b, head...)
	for i := range rows * columns {
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
	}
	return write(t, name, b)
}
