//go:build long

package telemetry_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestLong_Collector has an OpenTelemetry Collector, a process of its own, receive what the other tests' receiver does.
func TestLong_Collector(t *testing.T) { testReceivers(t, startProcess) }

// process is a Collector under way.
type process struct {
	endpoints
	cmd    *exec.Cmd
	output string // what the file exporter writes
	log    bytes.Buffer
}

// startProcess starts a Collector that listens on free ports of this machine. It is built first, a module of its own, to a place that git ignores: that takes
// minutes and a couple of hundred modules the first time.
func startProcess(t *testing.T) receiver {
	t.Helper()
	binary, err := filepath.Abs("../../../build/otel-collector")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = "../collector"
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the Collector: %v\n%s", err, out)
	}
	dir := t.TempDir()
	grpc, http := freePorts(t)
	c := &process{endpoints: endpoints{HTTP: "http://127.0.0.1:" + strconv.Itoa(http), GRPC: "http://127.0.0.1:" + strconv.Itoa(grpc)}, output: filepath.Join(dir, "received.jsonl")}
	config := fmt.Sprintf(`
receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:%d"}, http: {endpoint: "127.0.0.1:%d"}}}}
exporters: {file: {path: %q}, debug: {}}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines:
    traces: {receivers: [otlp], exporters: [file, debug]}
    metrics: {receivers: [otlp], exporters: [file, debug]}
`, grpc, http, c.output)
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c.cmd = exec.Command(binary, "--config", "file:"+path)
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.end() })
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if listens(grpc) && listens(http) {
			return c
		}
		if time.Now().After(deadline) {
			c.end()
			t.Fatalf("the Collector does not listen:\n%s", &c.log)
		}
	}
}

// freePorts returns two ports that nobody listens on.
func freePorts(t testing.TB) (a, b int) {
	t.Helper()
	for _, port := range []*int{&a, &b} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // once there are both, which thus differ
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return a, b
}

func listens(port int) bool {
	c, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(port), time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// end has the process write what it has and exit.
func (c *process) end() error {
	if c.cmd.ProcessState != nil {
		return nil
	}
	c.cmd.Process.Signal(os.Interrupt)
	kill := time.AfterFunc(time.Minute, func() { c.cmd.Process.Kill() })
	defer kill.Stop()
	return c.cmd.Wait()
}

// Stop ends the Collector and returns what it received.
func (c *process) Stop(t testing.TB) *Received {
	t.Helper()
	if err := c.end(); err != nil {
		t.Fatalf("the Collector: %v\n%s", err, &c.log)
	}
	if _, err := os.Stat(c.output); errors.Is(err, os.ErrNotExist) {
		return &Received{}
	}
	return readFile(t, c.output)
}
