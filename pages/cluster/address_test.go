package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse_Addresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]address{
		"redis://a:1":              {nodes: []string{"a:1"}},
		"redis://a":                {nodes: []string{"a:6379"}},
		"rediss://a:1,b,[::1]:7/t": {tls: true, nodes: []string{"a:1", "b:6379", "[::1]:7"}, table: "t"},
		"redis://[::1]/papers:x":   {nodes: []string{"[::1]:6379"}, table: "papers:x"},
	} {
		got, err := parse(text)
		if err != nil || got.tls != want.tls || got.table != want.table || !slices.Equal(got.nodes, want.nodes) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"http://a":           "cluster: address (http://a) must be redis://HOST:PORT",
		"redis://":           "cluster: address (redis://): node () must be HOST:PORT",
		"redis://a:0":        "node (a:0) must be HOST:PORT",
		"redis://a:65536":    "node (a:65536) must be HOST:PORT",
		"redis://a,,b":       "node () must be HOST:PORT",
		"redis://u:secret@a": "cluster: address must not have user or password: set TENSORCACHE_CLUSTER_USER and",
		"redis://a/x?db=1":   "must not have ? or #",
		"redis://a/x y":      `cluster: name of the table ("x y") must have 1 to 255 bytes`,
		"redis://a/{x}":      "without spaces, braces and slashes",
		"redis://a/x/y":      "without spaces, braces and slashes",
	} {
		_, err := parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestOptions_ReportAllFaults(t *testing.T) {
	t.Parallel()
	_, err := Options{Timeout: time.Second, Patience: time.Millisecond, Connections: -1, RequestBytes: -1, Lease: 1}.withDefaults()
	for _, want := range []string{"cluster: Patience (1ms) must be at least Timeout (1s)", "Connections (-1)", "RequestBytes (-1)", "Lease (1ns)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}

func TestCredentialsFromEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("pass word\r\nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envUser, "reader")
	t.Setenv(envPasswordFile, file)
	if c, err := CredentialsFromEnvironment(); err != nil || c.User != "reader" || c.Password != "pass word" || c.TLS != nil {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv(envPassword, "secret")
	t.Setenv(envCA, file)
	t.Setenv(envCert, file)
	_, err := CredentialsFromEnvironment()
	for _, want := range []string{"contradict each other", "must be a PEM file with a certificate", "must be set together"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}

func TestSlotOf_IsTheClustersSlot(t *testing.T) {
	t.Parallel()
	// From the cluster specification, and CLUSTER KEYSLOT.
	for key, want := range map[string]uint16{"123456789": 0x31c3, "foo": 12182, "": 0} {
		if got := slotOf(key); got != want {
			t.Errorf("%q: %d, must be %d", key, got, want)
		}
	}
}

func FuzzParseState(f *testing.F) {
	f.Add("loading token 1 2 3 4")
	f.Add(state{is: ready, token: "t", pages: 1 << 31, chunks: [3]int{1, 0, 9}}.String())
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseState(text); err == nil && s.String() != text {
			t.Errorf("%q became %q", text, s)
		}
	})
}
