//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/serve"
)

// crowd opens connections that do nothing after they have sent a text. They end with the test.
func crowd(t *testing.T, n int, addr, text string) (all []net.Conn) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, text)
		all = append(all, c)
	}
	return all
}

// TestRun_FewFiles: idle connections of one kind, more than the process may have files open, keep no other kind out.
func TestRun_FewFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket := "unix:" + dir + "/s"
	cmd := command(t, "--features", features(t, "users.npy", 1000, 16), "--device", "host", "--gpu-memory", "16KiB", "--listen", socket, "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0")
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh to set the limit of open files")
	}
	cmd.Args = append([]string{sh, "-c", `ulimit -n 128; exec "$0" "$@"`}, cmd.Args...)
	cmd.Path = sh
	p := launch(t, cmd)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	checks := 0
	check := func(after string) {
		t.Helper()
		fresh := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
		r, err := fresh.Get(p.http + "readyz")
		if err != nil {
			t.Fatalf("%s: /readyz: %v\n%s", after, err, p.logged())
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: /readyz: %d", after, r.StatusCode)
		}
		if out, errs, status := runs(t, "status", "--connect", socket); status != 0 {
			t.Fatalf("%s: status: %s%s\n%s", after, out, errs, p.logged())
		}
		c, err := cache.Attach(ctx, socket, cache.AttachOptions{Name: "trainer"})
		if err != nil {
			t.Fatalf("%s: attach: %v\n%s", after, err, p.logged())
		}
		defer c.Close()
		if err := c.Gather(ctx, cache.Request{Rows: []int64{7}, Out: make([]byte, 64)}); err != nil {
			t.Errorf("%s: %v", after, err)
		}
		control, err := serve.Dial(ctx, socket, "test")
		if err != nil {
			t.Fatalf("%s: %v", after, err)
		}
		defer control.Close()
		checks++
		if err := control.Snapshot(ctx, filepath.Join(dir, fmt.Sprint("snapshot", checks))); err != nil {
			t.Errorf("%s: snapshot: %v", after, err)
		}
	}
	kept := crowd(t, 1, p.resp, "")[0]
	answers := bufio.NewReader(kept)
	ping := func(after string) {
		t.Helper()
		io.WriteString(kept, "PING\r\n")
		if line, err := answers.ReadString('\n'); line != "+PONG\r\n" {
			t.Errorf("%s: %q, %v", after, line, err)
		}
	}
	addr := strings.TrimSuffix(strings.TrimPrefix(p.http, "http://"), "/")
	ping("before")
	for _, c := range crowd(t, 160, addr, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") { // each has had an answer, and is kept
		bufio.NewReader(c).ReadString('\n')
	}
	crowd(t, 160, addr, "")
	check("320 idle connections of --http")
	ping("320 idle connections of --http")
	p.inline("PING") // there is room for clients of --resp
	refused := 0
	for _, c := range crowd(t, 160, p.resp, "PING\r\n") {
		if line, _ := bufio.NewReader(c).ReadString('\n'); line == "-ERR max number of clients reached\r\n" {
			refused++
		}
	}
	if refused < 60 || refused > 140 {
		t.Errorf("%d of 160 clients of --resp are refused", refused)
	}
	check("160 clients of --resp")
	ping("160 clients of --resp")
	var full error
	for range 160 {
		c, err := serve.Dial(ctx, socket, "idle")
		if err != nil {
			full = err
			break
		}
		defer c.Close()
	}
	if full == nil || !strings.Contains(full.Error(), "serve: open files of the owner must leave 16 of 128 (RLIMIT_NOFILE) for itself: it takes no further connections now") {
		t.Errorf("after many commands: %v", full)
	}
	ping("many commands under way")
	if status, _ := p.get("readyz"); status != http.StatusOK {
		t.Errorf("many commands under way: /readyz: %d", status)
	}
	log := p.logged()
	for _, want := range []string{`msg="--resp serves fewer clients, as the process may not have more files open" clients=`, `msg="http: too many connections" most=16 closed=127.0.0.1:`,
		`msg="resp: client cut off" from=127.0.0.1:`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "too many open files") {
		t.Errorf("it ran out of files:\n%s", log)
	}
}
