package resp

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// redisTool returns the path of a program of Redis. Without it the test is skipped, unless TENSORCACHE_REQUIRE_REDIS is set.
func redisTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("TENSORCACHE_REQUIRE_REDIS") != "" {
			t.Fatalf("TENSORCACHE_REQUIRE_REDIS is set, but there is no %s", name)
		}
		t.Skipf("no %s on the PATH; TENSORCACHE_REQUIRE_REDIS=1 makes that a failure", name)
	}
	return path
}

// TestServer_RedisCLI: what redis-cli shows, by RESP2 and RESP3, with a password, and interactively, where it asks for the commands first.
func TestServer_RedisCLI(t *testing.T) {
	t.Parallel()
	path := redisTool(t, "redis-cli")
	_, addr := start(t, Options{Cache: open(t), Users: Users{Password: "read", Admin: "write"}})
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cli := func(input string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, append([]string{"-p", port}, args...)...)
		cmd.Env = append(os.Environ(), "REDISCLI_HISTFILE=/dev/null")
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, version := range []string{"-2", "-3"} {
		as := []string{version, "--no-auth-warning", "-a", "read"}
		with := func(args ...string) []string { return append(append([]string{}, as...), args...) }
		if got := cli("", with("--raw", "GET", "a:b:5")...); got != string(rowsOf(6, 2)[40:])+"\n" {
			t.Errorf("%s GET: %q", version, got)
		}
		if got := cli("", with("--no-raw", "MGET", "a:b:1", "a:b:100")...); got != "1) \"\\x02\\x00\\x00\\x00\\x03\\x00\\x00\\x00\"\n2) (nil)\n" {
			t.Errorf("%s MGET: %q", version, got)
		}
		if got := cli("", with("EXISTS", "users:0", "users:1000")...); got != "1\n" {
			t.Errorf("%s EXISTS: %q", version, got)
		}
		if got := cli("", with("INFO", "keyspace")...); !strings.Contains(got, "db0:keys=1120,") {
			t.Errorf("%s INFO: %q", version, got)
		}
		if got := cli("ping\nGET nothing\nTC.EXPLAIN a:b 3\n", with()...); !strings.HasPrefix(got, "PONG\nERR key (\"nothing\") must be table:row\n") || !strings.Contains(got, `[{"row":3,`) {
			t.Errorf("%s by standard input: %q", version, got)
		}
	}
	if got := cli("", "GET", "users:0"); got != "NOAUTH Authentication required.\n\n" {
		t.Errorf("without a password: %q", got)
	}
	value := strings.Repeat("v", 64)
	if got := cli("", "--no-auth-warning", "--user", "admin", "--pass", "write", "TC.SET", "users", "2", value); got != "OK\n" {
		t.Errorf("TC.SET: %q", got)
	}
	if got := cli("", "--no-auth-warning", "-a", "read", "--raw", "GET", "users:2"); got != value+"\n" {
		t.Errorf("GET of what was set: %q", got)
	}
	// --pipe sends what it has at once and counts the replies.
	var all bytes.Buffer
	for i := range 1000 {
		all.WriteString(encoded("GET", fmt.Sprintf("users:%d", i)))
	}
	if got := cli(all.String(), "--no-auth-warning", "-a", "read", "--pipe"); !strings.Contains(got, "errors: 0, replies: 1000") {
		t.Errorf("--pipe: %q", got)
	}
}

// TestServer_RedisBenchmark: the load generator of Redis ends without errors, with and without pipelines.
func TestServer_RedisBenchmark(t *testing.T) {
	t.Parallel()
	path := redisTool(t, "redis-benchmark")
	c := open(t)
	_, addr := start(t, Options{Cache: c})
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := c.Stats()
	for _, args := range [][]string{{"-c", "4", "-n", "2000", "MGET", "users:__rand_int__", "users:__rand_int__"}, {"-c", "4", "-P", "16", "-n", "2000", "GET", "users:__rand_int__"}} {
		out, err := exec.Command(path, append([]string{"-p", port, "-q", "-e", "-r", "1000"}, args...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "requests per second") || strings.Contains(string(out), "rror from server") {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	after, _ := c.Stats()
	if n := after.Tables[0].Lookups - before.Tables[0].Lookups; n < 6000 {
		t.Errorf("%d lookups, want at least 6,000", n)
	}
}
