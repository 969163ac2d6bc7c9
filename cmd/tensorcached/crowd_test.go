//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// resident returns the memory that a process has, in bytes.
func (p *process) resident() (bytes int64) {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	kib, err := strconv.ParseInt(regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindStringSubmatch(string(text))[1], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return kib << 10
}

// TestRun_Crowd: clients of --resp that do nothing, as many as --resp-clients, and ones that read nothing while their answers pile up, take bounded memory and hold up no other. One too
// many is told so, and what --resp-memory cuts off is logged. 1,000 and 200 of them, with -short a tenth.
func TestRun_Crowd(t *testing.T) {
	t.Parallel()
	idle, deaf := 1000, 200
	if testing.Short() {
		idle, deaf = 100, 20
	}
	const memory, each = 32 << 20, 400 << 10 // bytes of all, and of each client beside that (docs/service.md)
	p := start(t, "--features", features(t, "users.npy", 200, 16384), "--gpu-memory", "4MiB", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--resp-clients", strconv.Itoa(idle+deaf+1), "--resp-memory", "32MiB")
	other := crowd(t, 1, p.resp, "")[0]
	answers := bufio.NewReader(other)
	other.SetDeadline(time.Now().Add(4 * time.Minute))
	ping := func(after string) {
		t.Helper()
		begun := time.Now()
		io.WriteString(other, "PING\r\n")
		if line, err := answers.ReadString('\n'); line != "+PONG\r\n" || time.Since(begun) > 10*time.Second {
			t.Fatalf("%s: %q after %v, %v\n%s", after, line, time.Since(begun), err, p.logged())
		}
	}
	ping("before")
	before := p.resident()
	quiet := crowd(t, idle, p.resp, "PING\r\n")
	for _, c := range quiet {
		if line, err := bufio.NewReader(c).ReadString('\n'); line != "+PONG\r\n" {
			t.Fatalf("a client that then is idle: %q, %v", line, err)
		}
	}
	ping("idle clients")
	if taken := p.resident() - before; taken > int64(idle*(100<<10)+8<<20) {
		t.Errorf("%d idle clients take %d KiB", idle, taken>>10)
	}

	all := crowd(t, deaf, p.resp, "")
	for _, c := range crowd(t, 1, p.resp, "PING\r\n") {
		if line, _ := bufio.NewReader(c).ReadString('\n'); line != "-ERR max number of clients reached\r\n" {
			t.Errorf("a client too many got %q", line)
		}
	}
	// Each sends 4 MB of commands, which are read ahead of their answers.
	pipeline := strings.Repeat("GET users:7\r\n", 4_000_000/13)
	for _, c := range all {
		io.WriteString(c, pipeline)
	}
	most := int64(0)
	for range 20 {
		ping("clients that read nothing")
		most = max(most, p.resident())
		time.Sleep(25 * time.Millisecond)
	}
	// The garbage collector lets memory double before it acts.
	if limit := before + int64(2*memory+idle*(64<<10)+deaf*each); most > limit {
		t.Errorf("the process takes %d MiB with %d idle and %d deaf clients, more than %d", most>>20, idle, deaf, limit>>20)
	}
	t.Logf("%d MiB before, with %d idle and %d deaf clients %d MiB", before>>20, idle, deaf, most>>20)
	for _, want := range []string{`error="resp: too many clients" clients=`, `error="resp: connection held most (`, "of all must hold at most 33554432"} {
		if log := p.logged(); !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	for _, c := range all {
		c.Close()
	}
	ping("those have gone")
	for _, c := range quiet {
		io.WriteString(c, "PING\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); line != "+PONG\r\n" {
			t.Fatalf("an idle client is not served: %q, %v", line, err)
		}
	}
}
