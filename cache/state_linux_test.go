package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/tmpfstest"
)

const stateRows, stateColumns, stateCapacity = 3000, 32, 3100

// keptCache is a cache whose memory outlives it.
type keptCache struct {
	t           *testing.T
	file, state string
	log         bytes.Buffer
	*cache.Cache
}

// newKept returns one that is not open yet. A third of the rows of its file are equal to others.
func newKept(t *testing.T) *keptCache {
	folder := tmpfstest.Folder(t)
	k := &keptCache{t: t, file: filepath.Join(t.TempDir(), "x.npy"), state: filepath.Join(folder, "state")}
	t.Cleanup(func() {
		if k.Cache != nil {
			k.Close()
		}
	})
	k.write(0)
	return k
}

// write writes the file, whose numbers begin with first.
func (k *keptCache) write(first int) {
	b := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", stateRows, stateColumns))
	for row := range stateRows {
		if row%3 == 0 {
			row = 0
		}
		for i := range stateColumns {
			n := first + row*stateColumns + i
			b = append(b, byte(n), byte(n>>8), byte(row%7), 0x3f)
		}
	}
	if err := os.WriteFile(k.file, b, 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// options returns the options of the cache.
func (k *keptCache) options() cache.Options {
	table, err := cache.Open(k.file)
	if err != nil {
		k.t.Fatal(err)
	}
	k.log.Reset()
	return cache.Options{
		Tables: []cache.Table{table.WithName("x").WithCapacity(stateCapacity)}, Budget: 200_000, Codec: "ibp4", Shared: true, State: k.state,
		Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Telemetry: cache.TelemetryOptions{Logger: slog.New(slog.NewTextHandler(&k.log, nil))},
	}
}

// open opens the cache, after another one was closed.
func (k *keptCache) open(change func(*cache.Options)) {
	k.t.Helper()
	o := k.options()
	change(&o)
	var err error
	if k.Cache, err = cache.New(o); err != nil {
		k.t.Fatal(err)
	}
}

// rows returns all rows.
func (k *keptCache) rows() []byte {
	k.t.Helper()
	all := make([]int64, k.Rows(0))
	for i := range all {
		all[i] = int64(i)
	}
	out := make([]byte, len(all)*k.RowBytes(0))
	if err := k.Gather(context.Background(), cache.Request{Rows: all, Out: out}); err != nil {
		k.t.Fatal(err)
	}
	return out
}

// update updates some rows, appends others, and returns all rows.
func (k *keptCache) update(with byte) []byte {
	k.t.Helper()
	rows := []int64{0, 3, 4, 77, stateRows - 1}
	for row := k.Rows(0); len(rows) < 8; row++ {
		rows = append(rows, row)
	}
	data := bytes.Repeat([]byte{with, 1, 2, 0x3f, with, with, with, 0x40}, len(rows)*stateColumns/2)
	if err := k.Update(context.Background(), 0, rows, data); err != nil {
		k.t.Fatal(err)
	}
	return k.rows()
}

// TestState_TakenOver: another cache has the rows of the one before with all updates, in all layouts, codecs and with equal rows, again and again, and what was cached comes back.
func TestState_TakenOver(t *testing.T) {
	for _, c := range []struct {
		tier  cache.HostTier
		codec cache.Codec
	}{{cache.InPlace, cache.CodecNone}, {cache.InPlace, "ibp4"}, {cache.Packed, cache.CodecNone}, {cache.Packed, "ibp4"}} {
		t.Run(string(c.tier)+" "+string(c.codec), func(t *testing.T) {
			k := newKept(t)
			change := func(o *cache.Options) { o.Host.Tier, o.Codec = c.tier, c.codec }
			k.open(change)
			for round := range 3 {
				want := k.update(byte(round))
				if round == 1 { // the last one's updates are in the overlay, these in the host tier
					if err := k.Refresh(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				before, err := k.Stats()
				if err != nil {
					t.Fatal(err)
				}
				if err := k.Close(); err != nil {
					t.Fatal(err)
				}
				k.open(change)
				if got := k.log.String(); !strings.Contains(got, "state is taken over") {
					t.Fatal(got)
				}
				if got := k.rows(); !bytes.Equal(got, want) {
					t.Fatalf("round %d: rows differ", round)
				}
				after := new(cache.Stats)
				for end := time.Now().Add(time.Minute); after.Tables == nil || after.Tables[0].CachedRows < before.Tables[0].CachedRows*9/10; time.Sleep(time.Millisecond) {
					if *after, err = k.Stats(); err != nil || time.Now().After(end) {
						t.Fatalf("%d rows are cached, and %d were: %v", after.Tables[0].CachedRows, before.Tables[0].CachedRows, err)
					}
				}
				if got := k.rows(); !bytes.Equal(got, want) {
					t.Fatalf("round %d: rows differ once they are cached", round)
				}
			}
		})
	}
}

// roleFile returns the path of the file of a role in the folder.
func (k *keptCache) roleFile(role string) string {
	k.t.Helper()
	found, _ := filepath.Glob(filepath.Join(k.state, role+".*"))
	if len(found) != 1 {
		k.t.Fatalf("files of role %s: %v", role, found)
	}
	return found[0]
}

// TestState_Dropped: what does not verify is loaded anew, with the reason in the log, and never served.
func TestState_Dropped(t *testing.T) {
	flip := func(k *keptCache, path string, at int) {
		b, err := os.ReadFile(path)
		if err != nil {
			k.t.Fatal(err)
		}
		b[at] ^= 0x55
		if err := os.WriteFile(path, b, 0o600); err != nil {
			k.t.Fatal(err)
		}
	}
	none := func(*cache.Options) {}
	for name, c := range map[string]struct {
		damage func(*keptCache)
		change func(*cache.Options)
		want   string // in the log
	}{
		"file changed":       {func(k *keptCache) { k.write(5) }, none, "its file was"},
		"another codec":      {func(*keptCache) {}, func(o *cache.Options) { o.Codec = cache.CodecNone }, "its codec was"},
		"another layout":     {func(*keptCache) {}, func(o *cache.Options) { o.Host.Tier = cache.Packed }, "its layout was"},
		"another capacity":   {func(*keptCache) {}, func(o *cache.Options) { o.Tables[0] = o.Tables[0].WithCapacity(4000) }, "its capacity was"},
		"another name":       {func(*keptCache) {}, func(o *cache.Options) { o.Tables[0] = o.Tables[0].WithName("y") }, "there was no table of that name"},
		"no manifest":        {func(k *keptCache) { os.Remove(filepath.Join(k.state, "manifest")) }, none, "has no manifest"},
		"damaged manifest":   {func(k *keptCache) { flip(k, filepath.Join(k.state, "manifest"), 300) }, none, "the checksum of"},
		"damaged note":       {func(k *keptCache) { flip(k, k.roleFile("notes"), 0) }, none, "do not have their checksums"},
		"no overlay":         {func(k *keptCache) { os.Remove(k.roleFile("overlay")) }, none, "overlay: file"},
		"short host tier":    {func(k *keptCache) { os.Truncate(k.roleFile("table-*.rows"), 4096) }, none, "host tier: file"},
		"too many rows":      {func(k *keptCache) { flip(k, k.roleFile("table-*.words"), 4) }, none, "rows ("},
		"damaged groups":     {func(k *keptCache) { flip(k, k.roleFile("table-*.groups"), 0) }, none, "groups of equal rows"},
		"damaged row number": {func(k *keptCache) { flip(k, k.roleFile("table-*.words"), 1) }, none, "rows ("},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKept(t)
			k.open(none)
			k.update(9)
			if err := k.Close(); err != nil {
				t.Fatal(err)
			}
			c.damage(k)
			k.open(c.change)
			if got := k.log.String(); !strings.Contains(got, c.want) || strings.Contains(got, "state is taken over") {
				t.Errorf("the log has not %q, or says that the state is taken over: %s", c.want, got)
			}
			want, err := os.ReadFile(k.file)
			if err != nil {
				t.Fatal(err)
			}
			if got := k.rows(); !bytes.Equal(got, want[128:]) {
				t.Errorf("%d bytes of rows are not the %d of the file", len(got), len(want)-128)
			}
		})
	}
}

// TestState_Refused: a folder that cannot have the memory, or whose memory another process has, is an error that names it.
func TestState_Refused(t *testing.T) {
	k := newKept(t)
	o := k.options()
	o.Shared = false
	if _, err := cache.New(o); err == nil || !strings.Contains(err.Error(), "State ("+k.state+") needs Shared") {
		t.Error(err)
	}
	o = k.options()
	o.Tables = append(o.Tables, k.options().Tables...)
	if _, err := cache.New(o); err == nil || !strings.Contains(err.Error(), "two called x") {
		t.Error(err)
	}
	o = k.options()
	o.State = "/proc/self"
	if _, err := cache.New(o); err == nil || !strings.Contains(err.Error(), "/proc/self") {
		t.Error(err)
	}
	if err := os.Mkdir(k.state, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.New(k.options()); err == nil || !strings.Contains(err.Error(), "alone: chmod 700") {
		t.Error(err)
	}
}

// TestState_FailedStart: a New that fails leaves nothing that a later one reads, also if that one has other rows.
func TestState_FailedStart(t *testing.T) {
	k := newKept(t)
	o := k.options()
	o.Admission.Training = func(yield func(int, []int64) bool) { yield(5, []int64{0}) }
	if c, err := cache.New(o); err == nil {
		c.Close()
		t.Fatal("training of a table that is not there must fail")
	}
	if left, _ := filepath.Glob(filepath.Join(k.state, "*")); len(left) != 1 {
		t.Errorf("files are left besides the lock: %v", left)
	}
	b, err := os.ReadFile(k.file)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := 128; i < len(b); i++ { // rows that do not compress
		b[i] = byte(r.Uint32())
	}
	if err := os.WriteFile(k.file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	k.open(func(*cache.Options) {})
	if !bytes.Equal(k.rows(), b[128:]) {
		t.Error("rows are not those of the file")
	}
}

// TestState_FewFiles: a New for which the process may open too few files fails, whenever it meets the limit, and a later one takes over every update.
func TestState_FewFiles(t *testing.T) { // not beside others, as the limit is that of the process
	k := newKept(t)
	k.open(func(*cache.Options) {})
	want := k.update(9)
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	failed := 0
	for more := uint64(0); ; more++ {
		o := k.options()
		f, err := os.Open(k.file)
		if err != nil {
			t.Fatal(err)
		}
		less := unix.Rlimit{Cur: uint64(f.Fd()) + more, Max: limit.Max} // a new descriptor is the lowest that is free
		f.Close()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &less); err != nil {
			t.Fatal(err)
		}
		k.Cache, err = cache.New(o)
		unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
		if err == nil {
			break
		}
		if failed++; !errors.Is(err, unix.EMFILE) {
			t.Error(err)
		}
	}
	if failed == 0 {
		t.Error("no New has met the limit")
	}
	if got := k.log.String(); !strings.Contains(got, "state is taken over") || !bytes.Equal(k.rows(), want) {
		t.Errorf("rows are not those of before: %s", got)
	}
}
