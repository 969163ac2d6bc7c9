package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
)

// TestRun_Users: named users have their rights over RESP and HTTP, changes are recorded in a file, and SIGHUP takes in another file of users.
func TestRun_Users(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	audit := filepath.Join(dir, "audit.json")
	password := write(t, "password", []byte("right\n"))
	users := write(t, "users.yaml", fmt.Appendf(nil, "users:\n- {name: trainer, password_file: %s, read: [f], write: [f]}\n"+
		"- {name: looker, password_sha256: [2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b], read: [other]}\n", password)) // of "secret"
	p := start(t, "--features", features(t, "f.npy", 100, 4), "--gpu-memory", "1KiB", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--http-token-file", write(t, "token", []byte("token\n")),
		"--resp-users", users, "--audit-log", audit, "--listen", "unix:"+filepath.Join(dir, "s"))
	const row = "................" // of 16 bytes
	if got := p.inline("AUTH trainer right", "TC.SET f 3 "+row, "GET f:3", "TC.SET f 100 "+row); !strings.HasPrefix(got, "+OK\r\n+OK\r\n$16\r\n"+row+"\r\n-ERR ") {
		t.Errorf("trainer: %q", got)
	}
	if got := p.inline("AUTH looker secret", "GET f:3", "ACL WHOAMI"); got != "+OK\r\n-NOPERM user looker has no permission to read rows of table f (GET)\r\n$6\r\nlooker\r\n+OK\r\n" {
		t.Errorf("looker: %q", got)
	}
	get := func(name, password string) int {
		t.Helper()
		r, err := http.NewRequest("GET", p.http+"stats", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth(name, password)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a.StatusCode
	}
	if right, wrong, open := get("trainer", "right"), get("trainer", "secret"), get("default", ""); right != 200 || wrong != 401 || open != 401 {
		t.Errorf("HTTP: %d, %d with a wrong password, %d as default", right, wrong, open)
	}
	c, err := cache.Attach(t.Context(), "unix:"+filepath.Join(dir, "s"), cache.AttachOptions{Name: "job"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Update(t.Context(), 0, []int64{5, 6}, make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	if _, failed := p.table("drop", "--table", "f"); failed == "" {
		t.Error("the last table is dropped")
	}
	b, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) != 5 || !strings.Contains(lines[0], `"msg":"resp: rows changed","user":"trainer","from":"127.0.0.1:`) || !strings.Contains(lines[0], `"table":"f","rows":1,"first":3,"last":3}`) ||
		!strings.Contains(lines[1], `"rows":0,"first":100,"last":100,"error":"`) ||
		!strings.Contains(lines[2], `"msg":"rows changed","request":"update","process":"`) || !strings.Contains(lines[2], `"table":"f","rows":2}`) ||
		!strings.Contains(lines[3], `"msg":"tables changed","request":"drop","process":"`) || !strings.Contains(lines[3], `"table":"f","error":"`) {
		t.Errorf("the audit log has %s", b)
	}
	if err := os.WriteFile(users, fmt.Appendf(nil, "users:\n- {name: trainer, password_file: %s, read: [f]}\n", password), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.until("looker is gone", func() bool { return strings.HasPrefix(p.inline("AUTH looker secret"), "-WRONGPASS") })
	if got := p.inline("AUTH trainer right", "TC.SET f 3 "+row); !strings.HasPrefix(got, "+OK\r\n-NOPERM user trainer has no permission to change rows of table f (TC.SET)") {
		t.Errorf("trainer without the right to write: %q", got)
	}
}
