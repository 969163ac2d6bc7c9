package redis_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/serve/resp"
)

// TestClients_Jedis: the client for Java.
func TestClients_Jedis(t *testing.T) {
	_, port, err := net.SplitHostPort(serve(t, resp.Users{Admin: "write"}))
	if err != nil {
		t.Fatal(err)
	}
	script(t, nil, "java", "-cp", installed(t, "jedis")+"/*", "testdata/Clients.java", port)
}

// TestClients_RedisExporter: what Prometheus gets by redis_exporter, as Debian packages it.
func TestClients_RedisExporter(t *testing.T) {
	path, err := exec.LookPath("prometheus-redis-exporter")
	if err != nil {
		t.Skip("no prometheus-redis-exporter on the PATH: Debian has it")
	}
	addr := serve(t, resp.Users{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	cmd := exec.Command(path, "-redis.addr", addr, "-web.listen-address", at)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var text string
	for begun := time.Now(); text == ""; time.Sleep(50 * time.Millisecond) {
		if r, err := http.Get(fmt.Sprintf("http://%s/metrics", at)); err == nil {
			b, _ := io.ReadAll(r.Body)
			r.Body.Close()
			text = string(b)
		} else if time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"\nredis_up 1\n", "\nredis_db_keys{db=\"db0\"} 1000\n", "\nredis_exporter_last_scrape_error{err=\"\"} 0\n", "\nredis_connected_clients ", "\nredis_commands_total{cmd=\"config|get\"} ",
		"\nredis_slowlog_length ", "\nredis_config_maxclients 1000\n", "\nredis_memory_used_bytes "} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
