package cluster

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/redistest"
)

// startTLS starts servers with a certificate that is valid until a moment.
func startTLS(t *testing.T, o redistest.Options, until time.Time) (url, ca string) {
	t.Helper()
	cert, key := redistest.Certificate(t, until)
	o.TLS.Cert, o.TLS.Key, o.TLS.CA = cert, key, cert
	c := redistest.Start(t, o)
	return strings.Replace(c.URL(), "redis://", "rediss://", 1), cert
}

func trusting(t *testing.T, ca string) Options {
	t.Helper()
	var c Credentials
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if err := c.authorities(ca); err != nil {
		t.Fatal(err)
	}
	return Options{Credentials: c, Table: "x", Logger: quiet(t)}
}

func TestOpen_TLS(t *testing.T) {
	t.Parallel()
	url, ca := startTLS(t, redistest.Options{}, time.Now().Add(time.Hour))
	o := trusting(t, ca)
	data := rowsOf(2000, 31)
	var w *Writer
	var err error
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) { // until the cluster is whole
		if w, err = NewWriter(t.Context(), url, o); err == nil || time.Since(begin) > patience {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := packTo(t.Context(), w, "x", data); err != nil {
		t.Fatal(err)
	}
	_, table := openTable(t, url, o)
	allRows(t, table, data)
	// An authority that is not ours, and no TLS.
	if _, err := Open(t.Context(), url, Options{Table: "x"}); err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("got %v", err)
	}
	if _, err := Open(t.Context(), strings.Replace(url, "rediss", "redis", 1), o); err == nil || !strings.Contains(err.Error(), "rediss://") {
		t.Errorf("opened without TLS: %v", err)
	}
	plain := redistest.Start(t, redistest.Options{Masters: -1})
	if _, err := Open(t.Context(), strings.Replace(plain.URL(), "redis", "rediss", 1), Options{Table: "x"}); err == nil || !strings.Contains(err.Error(), "redis://") {
		t.Errorf("opened with TLS: %v", err)
	}
}

func TestOpen_ExpiredTLS(t *testing.T) {
	t.Parallel()
	url, ca := startTLS(t, redistest.Options{Masters: -1}, time.Now().Add(-time.Hour))
	begin := time.Now()
	_, err := Open(t.Context(), url, trusting(t, ca))
	if err == nil || !strings.Contains(err.Error(), "certificate has expired") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("the error took %v", took)
	}
}
