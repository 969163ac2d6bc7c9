//go:build linux

package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/version"
)

// TestRun_Life: one line when it is ready, rows and numbers over all listeners, exit status 0 on SIGTERM after a snapshot, which the next start restores.
func TestRun_Life(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	snapshot := filepath.Join(dir, "snapshot")
	args := []string{"--features", features(t, "users.npy", 10_000, 16), "--codec", "none", "--gpu-memory", "64KiB", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--listen", "unix:" + dir + "/s", "--snapshot", snapshot, "--cold", "--refresh-interval", "20ms", "--sample-rate", "1"}
	p := start(t, args...)
	if !regexp.MustCompile(`^tensorcached ` + regexp.QuoteMeta(version.Number) + ` ready after [0-9.]+ s: 0 of 10,000 rows cached in 64 KiB of host, unix:\S+/s, resp 127.0.0.1:\d+, http://127.0.0.1:\d+/$`).MatchString(p.ready) {
		t.Errorf("ready: %q", p.ready)
	}
	if got, want := p.inline("GET users:1", "EXISTS users:9999 users:10000"), ":1\r\n+OK\r\n"; !strings.HasPrefix(got, "$64\r\n\x10\x00\x00\x00\x11\x00") || !strings.HasSuffix(got, want) {
		t.Errorf("RESP: %q", got)
	}
	if got := p.inline("INFO server"); !strings.Contains(got, "\r\ntensorcache_version:"+version.Number+"\r\n") {
		t.Errorf("INFO: %q", got)
	}
	if out, _, status := runs(t, "--version"); status != 0 || !strings.HasPrefix(out, "tensorcached version "+version.Number+" (") {
		t.Errorf("--version: %d %q", status, out)
	}
	for path, want := range map[string]string{"healthz": "ok\n", "readyz": "ready\n"} {
		if status, body := p.get(path); status != http.StatusOK || body != want {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if status, body := p.get("metrics"); status != http.StatusOK || !strings.Contains(body, "\ntensorcache_lookups_total{") {
		t.Errorf("metrics: %d %.3000s", status, body)
	}
	if status, body := p.get("debug/pprof/cmdline"); status != http.StatusOK || !strings.Contains(body, "--snapshot") {
		t.Errorf("pprof: %d %q", status, body)
	}
	s := p.stats()
	if s.Clients == nil || *s.Clients != 0 || s.Lookups != 1 || len(s.Tables) != 1 || s.Tables[0].Name != "users" || s.Tables[0].RowBytes != 64 {
		t.Errorf("stats: %+v", s)
	}
	// It follows its workload: rows that are asked for become cached.
	p.until("rows are cached", func() bool {
		p.inline("MGET users:5000 users:5001 users:5002 users:5003")
		return p.stats().Tables[0].RowsCached >= 4
	})
	p.signal(syscall.SIGTERM)
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d\n%s", status, p.logged())
	}
	if _, err := os.Stat(filepath.Join(dir, "s")); err == nil {
		t.Error("the socket is still there")
	}
	p = start(t, append(args, "--refresh-interval", "0")...)
	if s := p.stats(); s.RestoredRows < 4 || s.Tables[0].RowsCached != s.RestoredRows {
		t.Errorf("after a restart: %+v", s)
	}
	before := p.stats().Hits
	p.inline("GET users:5002")
	if p.stats().Hits != before+1 {
		t.Error("a row of the snapshot is not a hit")
	}
}

// TestRun_Snapshots: they are written at intervals, and a damaged one is no reason not to start.
func TestRun_Snapshots(t *testing.T) {
	t.Parallel()
	snapshot := write(t, "snapshot", []byte("damaged"))
	p := start(t, "--features", features(t, "f.npy", 1000, 16), "--resp", "127.0.0.1:0", "--snapshot", snapshot, "--snapshot-interval", "30ms")
	p.until("the log says why", func() bool { return strings.Contains(p.logged(), "snapshot not restored") })
	p.until("a snapshot is written", func() bool {
		info, err := os.Stat(snapshot)
		return err == nil && info.Size() > 16
	})
}

// TestRun_Reload: SIGHUP changes what can change, says what cannot, and a wrong configuration changes nothing.
func TestRun_Reload(t *testing.T) {
	t.Parallel()
	f := features(t, "users.npy", 10_000, 16)
	config, password := write(t, "c.yaml", nil), write(t, "password", []byte("one\n"))
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, fmt.Appendf(nil, "features: %s\ndevice: host\nresp: 127.0.0.1:0\nhttp: 127.0.0.1:0\nresp_password_file: %s\n%s", f, password, text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("gpu_memory: 64KiB\nrefresh_interval: 0s\n")
	p := launch(t, command(t, "--config", config))
	if s := p.stats(); s.GPUMemory != 64<<10 || s.Refresh.Cycles != 0 {
		t.Fatalf("%+v", s)
	}
	reloads := 0
	reload := func() {
		t.Helper()
		reloads++
		p.signal(syscall.SIGHUP)
		p.until("the reload is logged", func() bool {
			return strings.Count(p.logged(), "msg=reloaded")+strings.Count(p.logged(), "the configuration is wrong") == reloads
		})
	}
	configure("gpu_memory: 32KiB\nrefresh_interval: 10ms\nrefresh_churn: 0.5\npolicy: lru\ncodec: ibp4\nworkers: 3\n")
	if err := os.WriteFile(password, []byte("two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload()
	if s := p.stats(); s.GPUMemory != 32<<10 {
		t.Errorf("budget %d after the reload", s.GPUMemory)
	}
	p.until("cycles run", func() bool { return p.stats().Refresh.Cycles > 1 })
	for _, want := range []string{`msg=reloaded changed="refresh-interval, refresh-churn, policy, gpu-memory"`, `flag=--codec is=auto should_be=ibp4`, `flag=--workers is=0 should_be=3`} {
		if !strings.Contains(p.logged(), want) {
			t.Errorf("the log lacks %s:\n%s", want, p.logged())
		}
	}
	if got := p.inline("AUTH one"); !strings.HasPrefix(got, "-WRONGPASS") {
		t.Errorf("the old password: %q", got)
	}
	if got := p.inline("AUTH two", "EXISTS users:1"); got != "+OK\r\n:1\r\n+OK\r\n" {
		t.Errorf("the new password: %q", got)
	}
	configure("budget: 16KiB\nrefresh_intervall: 3s\n")
	reload()
	if !strings.Contains(p.logged(), fmt.Sprintf(`config %s:7: unknown key \"refresh_intervall\"`, config)) || p.stats().GPUMemory != 32<<10 {
		t.Errorf("after a wrong configuration: %+v\n%s", p.stats(), p.logged())
	}
	// A budget that cannot be is refused; what else has changed does.
	configure("gpu_memory: 100B\nrefresh_interval: 10ms\nrefresh_churn: 0.75\npolicy: lru\n")
	reload()
	if log := p.logged(); !strings.Contains(log, `msg="not reloaded" flags=gpu-memory`) || !strings.Contains(log, "msg=reloaded changed=refresh-churn\n") || p.stats().GPUMemory != 32<<10 {
		t.Errorf("after a budget that is too small:\n%s", log)
	}
	// Tables that cannot be opened leave those of before.
	if err := os.WriteFile(config, fmt.Appendf(nil, "tables: [{file: %s, name: people, capacity: 20000, resident: auto, gpu_memory: 4KiB}]\ndevice: host\nresp: 127.0.0.1:0\nhttp: 127.0.0.1:0\nresp_password_file: %s\n", f, password), 0o600); err != nil {
		t.Fatal(err)
	}
	reload()
	if log := p.logged(); !strings.Contains(log, `msg="not reloaded" flags=table error="table: people: resident tables need `) || p.stats().Tables[0].Name != "users" {
		t.Errorf("after a table that does not fit its budget:\n%s", log)
	}
	// Others come and go.
	more := features(t, "items.npy", 100, 4)
	configure("gpu_memory: 64KiB\npolicy: lru\ntables: [{file: " + more + "}]\n")
	reload()
	if got := p.inline("AUTH two", "EXISTS users:1", "EXISTS items:99", "EXISTS 1:99"); got != "+OK\r\n:1\r\n:1\r\n:1\r\n+OK\r\n" {
		t.Errorf("a further table: %q\n%s", got, p.logged())
	}
	configure("gpu_memory: 64KiB\npolicy: lru\n")
	reload()
	if got := p.inline("AUTH two", "EXISTS users:1", "GET items:99"); got != "+OK\r\n:1\r\n-ERR table (\"items\") must be one of 1: users\r\n+OK\r\n" {
		t.Errorf("a table fewer: %q", got)
	}
	p.signal(syscall.SIGTERM)
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// TestRun_Devices: two devices with budgets of their own.
func TestRun_Devices(t *testing.T) {
	t.Parallel()
	p := start(t, "--features", features(t, "f.npy", 10_000, 16), "--codec", "none", "--devices", "2", "--gpu-memory", "64KiB,32KiB", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0")
	if s := p.stats(); s.GPUMemory != 96<<10 {
		t.Errorf("budgets %d B together", s.GPUMemory)
	}
	if got := p.inline("EXISTS f:1", "GET f:10000"); got != ":1\r\n$-1\r\n+OK\r\n" {
		t.Errorf("%q", got)
	}
}

// TestRun_Systemd: the states that systemd is told of, in order, and its watchdog.
func TestRun_Systemd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := command(t, "--features", features(t, "f.npy", 100, 4), "--gpu-memory", "1KiB", "--device", "host", "--resp", "127.0.0.1:0")
	// systemd sets WATCHDOG_PID to the process's; a shell that becomes the program has it.
	cmd.Args = append([]string{"sh", "-c", `WATCHDOG_PID=$$ exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=40000")
	p := launch(t, cmd)
	next := func() string {
		t.Helper()
		b := make([]byte, 1<<12)
		l.SetReadDeadline(time.Now().Add(patience))
		n, err := l.Read(b)
		if err != nil {
			t.Fatalf("systemd hears nothing: %v\n%s", err, p.logged())
		}
		return string(b[:n])
	}
	other := func() string { // than the watchdog's
		t.Helper()
		for {
			if s := next(); s != "WATCHDOG=1" {
				return s
			}
		}
	}
	if got := other(); got != "READY=1\nSTATUS="+p.ready {
		t.Errorf("first: %q", got)
	}
	for range 3 {
		if got := next(); got != "WATCHDOG=1" {
			t.Errorf("then: %q", got)
		}
	}
	p.signal(syscall.SIGHUP)
	if got := other(); !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=\d+$`).MatchString(got) {
		t.Errorf("on SIGHUP: %q", got)
	}
	if got := other(); got != "READY=1" {
		t.Errorf("after the reload: %q", got)
	}
	p.signal(syscall.SIGTERM)
	if got := other(); !strings.HasPrefix(got, "STOPPING=1") {
		t.Errorf("on SIGTERM: %q", got)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// TestRun_Drain: a client that does not read what it has asked for is cut off after --drain-timeout, and a second signal ends the program at once.
func TestRun_Drain(t *testing.T) {
	t.Parallel()
	f := features(t, "wide.npy", 100, 50_000) // rows of 200,000 bytes
	deaf := func(p *process) {
		t.Helper()
		c, err := net.Dial("tcp", p.resp)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		io.WriteString(c, strings.Repeat("TC.GATHER wide"+strings.Repeat(" 1", 100)+"\r\n", 20))
		if _, err := bufio.NewReaderSize(c, 16).ReadByte(); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--features", f, "--codec", "none", "--gpu-memory", "50%", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"}
	p := start(t, append(args, "--drain-timeout", "300ms")...)
	deaf(p)
	begun := time.Now()
	p.signal(syscall.SIGTERM)
	if status := p.wait(); status != 0 || time.Since(begun) < 250*time.Millisecond || !strings.Contains(p.logged(), `msg="cut off" what="clients of --resp"`) {
		t.Errorf("status %d after %v\n%s", status, time.Since(begun), p.logged())
	}
	p = start(t, append(args, "--drain-timeout", "1h")...)
	deaf(p)
	p.signal(syscall.SIGTERM)
	p.until("it is ending", func() bool { return strings.Contains(p.logged(), "msg=ending") })
	p.signal(syscall.SIGINT)
	if status := p.wait(); status != 1 || !strings.Contains(p.logged(), `msg="ended at once"`) {
		t.Errorf("status %d\n%s", status, p.logged())
	}
}

// TestRun_Taken: an address that another program has is an error before anything is loaded.
func TestRun_Taken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"--resp", "--http"} {
		_, stderr, status := runs(t, "--features", features(t, "f.npy", 100, 4), "--device", "host", flag, l.Addr().String())
		if status != 1 || !strings.HasPrefix(stderr, "tensorcached: "+flag+" ("+l.Addr().String()+"): ") || !strings.Contains(stderr, "address already in use") {
			t.Errorf("%s: status %d, %s", flag, status, stderr)
		}
	}
}

// TestRun_Token: with a token, numbers need it, and probes do not; the file is read again on SIGHUP.
func TestRun_Token(t *testing.T) {
	t.Parallel()
	token := write(t, "token", []byte("secret\n"))
	p := start(t, "--features", features(t, "f.npy", 100, 4), "--gpu-memory", "1KiB", "--http", "0.0.0.0:0", "--http-token-file", token)
	p.http = strings.Replace(p.http, "[::]", "127.0.0.1", 1)
	get := func(path, token string) int {
		t.Helper()
		r, err := http.NewRequest("GET", p.http+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a.StatusCode
	}
	for _, path := range []string{"stats", "metrics", "history", "explain?table=f&row=1"} {
		if none, wrong, right := get(path, ""), get(path, "Secret"), get(path, "secret"); none != 401 || wrong != 401 || right != 200 {
			t.Errorf("%s: %d without a token, %d with a wrong one, %d with it", path, none, wrong, right)
		}
	}
	for path, want := range map[string]int{"healthz": 200, "readyz": 200, "": 200, "debug/pprof/": 404} {
		if got := get(path, "secret"); got != want {
			t.Errorf("/%s: %d", path, got)
		}
	}
	if err := os.WriteFile(token, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.until("the new token counts", func() bool { return get("stats", "other") == 200 })
	if got := get("stats", "secret"); got != 401 {
		t.Errorf("the old token: %d", got)
	}
}

// TestRun_TLS: clients of Redis come by TLS only, and SIGHUP takes in a new certificate.
func TestRun_TLS(t *testing.T) {
	t.Parallel()
	cert, key := write(t, "cert.pem", nil), write(t, "key.pem", nil)
	certify := func(serial int64) {
		t.Helper()
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
			if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	certify(1)
	p := start(t, "--features", features(t, "f.npy", 100, 4), "--gpu-memory", "1KiB", "--resp", "127.0.0.1:0", "--resp-tls-cert", cert, "--resp-tls-key", key)
	serial := func() int64 {
		t.Helper()
		c, err := tls.Dial("tcp", p.resp, &tls.Config{InsecureSkipVerify: true}) // the test made it
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, "EXISTS f:1\r\nQUIT\r\n")
		if b, err := io.ReadAll(c); err != nil || string(b) != ":1\r\n+OK\r\n" {
			t.Errorf("by TLS: %q, %v", b, err)
		}
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 1 {
		t.Errorf("certificate %d", n)
	}
	certify(2)
	p.signal(syscall.SIGHUP)
	p.until("the new certificate is there", func() bool { return serial() == 2 })
}
