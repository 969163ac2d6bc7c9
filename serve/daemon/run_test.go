package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

// TestRun_SnapshotFolder: a program that cannot write its snapshot does not start.
func TestRun_SnapshotFolder(t *testing.T) {
	const folder = "/proc" // not even root can write there
	if _, err := os.Stat(folder); err != nil {
		t.Skip(err)
	}
	c, err := Load(strings.Fields("--table name=t,dtype=float32,columns=4,capacity=100 --gpu-memory 4KiB --device host --http 127.0.0.1:0 --snapshot " + folder + "/x.snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	newCache = func(context.Context, cache.Options) (*cache.Cache, error) {
		return nil, errors.New("the tables were loaded")
	}
	defer func() { newCache = cache.NewContext }()
	var out bytes.Buffer
	var log lockedBuffer
	if err := Run(c, Program{Stdout: &out, Stderr: &log}); err == nil || !strings.HasPrefix(err.Error(), "--snapshot (/proc/x.snapshot) must be in a folder that can be written to: ") {
		t.Errorf("%v", err)
	}
}

// TestRun_Loading: while the tables are loaded, HTTP says so, and SIGTERM ends the loading, which is a regular end.
func TestRun_Loading(t *testing.T) {
	newCache = func(ctx context.Context, o cache.Options) (*cache.Cache, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	defer func() { newCache = cache.NewContext }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	c, err := Load(strings.Fields("--table name=t,dtype=float32,columns=4,capacity=100 --gpu-memory 4KiB --device host --http " + addr))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var log lockedBuffer
	ended := make(chan error, 1)
	go func() { ended <- Run(c, Program{Stdout: &out, Stderr: &log}) }()
	answer := func(path string) (int, string) {
		for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			r, err := http.Get("http://" + addr + "/" + path)
			if err != nil {
				if time.Since(begun) > time.Minute {
					t.Fatal(err)
				}
				continue
			}
			defer r.Body.Close()
			b, _ := io.ReadAll(r.Body)
			return r.StatusCode, string(b)
		}
	}
	const loading = "tensorcached: loading the tables\n"
	for _, path := range []string{"readyz", "stats", "explain?table=0&row=0"} {
		if status, body := answer(path); status != http.StatusServiceUnavailable || body != loading {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if status, _ := answer("healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d", status)
	}
	// Run has had the signals sent to it since before it listened.
	syscall.Kill(syscall.Getpid(), syscall.SIGHUP) // does nothing yet
	syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil || out.Len() > 0 || !strings.Contains(log.String(), "ended while the tables were loaded") {
			t.Errorf("%v, stdout %q, log\n%s", err, out.String(), log.String())
		}
	case <-time.After(time.Minute):
		t.Fatal("SIGTERM does not end the loading")
	}
}

type lockedBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.Buffer.Write(p)
}
