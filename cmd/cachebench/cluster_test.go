package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/redistest"
)

// floats returns n elements of float32 that codecs shrink.
func floats(n int) []byte {
	r := rand.New(rand.NewPCG(7, 7))
	b := make([]byte, 0, 4*n)
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64())))
	}
	return b
}

func TestPack_ToACluster(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{})
	folder := t.TempDir()
	rows := filepath.Join(folder, "rows.npy")
	if err := os.WriteFile(rows, npyOf(t, dtype.Float32, floats(3000*64), 3000, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	pack := func(args ...string) (p experiment.Packed) {
		t.Helper()
		cmd := command(t, append([]string{"pack", "--json"}, args...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &p)
		}
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, &stderr)
		}
		return p
	}
	// A table file; its directory of pages, copied; the cluster's pages, copied back.
	one := pack(rows, "--out", c.URL())
	if one.Name != "rows" || one.Generation != 1 || one.Rows != 3000 {
		t.Errorf("%+v", one)
	}
	folderOfPages := filepath.Join(folder, "rows.tc")
	pack(rows, "--out", folderOfPages)
	two := pack(folderOfPages, "--out", c.URL()+"/rows")
	if two.Generation != 2 || len(two.Dropped) != 1 || two.Dropped[0] != 1 || two.PagesBytes != one.PagesBytes {
		t.Errorf("%+v", two)
	}
	pack(rows, "--out", c.URL()+"/other", "--codec", "none")
	longer := write(t, "longer.npy", npyOf(t, dtype.Float32, smooth(10*65), 10, 65))
	if out, err := command(t, "pack", longer, "--out", c.URL()+"/other").CombinedOutput(); err == nil || !strings.Contains(string(out), "/other) has table other, rows of 256 B (float32), and the new one is other, rows of 260 B (float32): take another place, or --force") {
		t.Errorf("%v: %s", err, out)
	}
	back := pack(c.URL()+"/rows", "--out", filepath.Join(folder, "back.tc"))
	if back.PagesBytes != one.PagesBytes || back.Codec != one.Codec {
		t.Errorf("%+v", back)
	}
	for _, from := range []string{c.URL() + "/rows", c.URL() + "/other"} {
		if out, err := command(t, "pack", "verify", from).CombinedOutput(); err != nil || !strings.Contains(string(out), "no fault") {
			t.Errorf("%v: %s", err, out)
		}
		unpacked := filepath.Join(folder, "unpacked.npy")
		if out, err := command(t, "pack", "unpack", from, "--out", unpacked, "--force").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		want, _ := os.ReadFile(rows)
		if got, err := os.ReadFile(unpacked); err != nil || !bytes.HasSuffix(got, want[len(want)-3000*64*4:]) {
			t.Errorf("%s: other rows (%v)", from, err)
		}
	}
	for _, bad := range []struct {
		args []string
		want string
	}{
		{[]string{"pack", "verify", c.URL()}, "the address must end in /TABLE, one of"},
		{[]string{"pack", "verify", c.URL() + "/none"}, "no such table"},
		{[]string{"pack", folderOfPages, "--out", c.URL() + "/another"}, "table (another) of the address must be rows"},
		{[]string{"pack", rows, "--out", "redis://user:secret@localhost"}, "must not have user or password"},
	} {
		out, err := command(t, bad.args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), bad.want) || strings.Contains(string(out), "secret") {
			t.Errorf("%v: %s", bad.args, out)
		}
	}
}

// User, password and authority come from the environment and from files that it names.
func TestPack_Credentials(t *testing.T) {
	t.Parallel()
	o := redistest.Options{Masters: -1, Password: "right", Config: []string{"user default on >right ~* +@all", "user loads on >secret ~* +@all"}}
	o.TLS.Cert, o.TLS.Key = redistest.Certificate(t, time.Now().Add(time.Hour))
	o.TLS.CA = o.TLS.Cert
	out := strings.Replace(redistest.Start(t, o).URL(), "redis://", "rediss://", 1) + "/x"
	folder := t.TempDir()
	rows, password := filepath.Join(folder, "rows.npy"), filepath.Join(folder, "password")
	if err := os.WriteFile(rows, npyOf(t, dtype.Float32, floats(100*16), 100, 16), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const prefix = "TENSORCACHE_CLUSTER_"
	user, file, ca := prefix+"USER=loads", prefix+"PASSWORD_FILE="+password, prefix+"CA="+o.TLS.CA
	for _, c := range []struct {
		environment []string
		want        string // of the error
	}{
		{[]string{user, file, ca}, ""},
		{[]string{user, prefix + "PASSWORD=secret", ca}, ""},
		{[]string{user, prefix + "PASSWORD=secret"}, "certificate signed by unknown authority"},
		{[]string{user, prefix + "PASSWORD=wrong", ca}, "WRONGPASS"},
		{[]string{ca}, "NOAUTH"},
		{[]string{user, prefix + "PASSWORD_FILE=" + folder, ca}, "PASSWORD_FILE"},
	} {
		cmd := command(t, "pack", rows, "--out", out)
		cmd.Env = append(cmd.Env, c.environment...)
		text, err := cmd.CombinedOutput()
		if (err != nil) != (c.want != "") || !strings.Contains(string(text), c.want) || strings.Contains(string(text), "secret") {
			t.Errorf("%v: %v: %s", c.environment, err, text)
		}
	}
}
