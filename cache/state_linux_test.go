package cache_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

func TestState_Try(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "tensorcache-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(dir)
	for _, tier := range []cache.HostTier{cache.InPlace, cache.Packed} {
		for _, codec := range []cache.Codec{cache.CodecNone, "ibp4"} {
			state := filepath.Join(dir, string(tier)+string(codec))
			file := filepath.Join(t.TempDir(), "x.npy")
			const rows, columns = 5000, 32
			writeNPY(t, file, rows, columns)
			var log bytes.Buffer
			open := func() *cache.Cache {
				table, err := cache.Open(file)
				if err != nil {
					t.Fatal(err)
				}
				o := cache.Options{Tables: []cache.Table{table.WithName("x").WithCapacity(rows + 100)}, Budget: 200_000, Codec: codec, Shared: true, State: state}
				o.Devices.Backend, o.Host.Tier = cache.BackendHost, tier
				o.Telemetry.Logger = slog.New(slog.NewTextHandler(&log, nil))
				c, err := cache.New(o)
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			c := open()
			_ = time.Now
			ids := []int64{3, 4, 77, 4999, 5000, 5001}
			data := bytes.Repeat([]byte("abcdefgh"), len(ids)*columns*4/8)
			if err := c.Update(context.Background(), 0, ids, data); err != nil {
				t.Fatal(err)
			}
			before := contentsOf(t, c)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			log.Reset()
			c = open()
			if !strings.Contains(log.String(), "state is taken over") {
				t.Error(log.String())
			}
			if after := contentsOf(t, c); !bytes.Equal(before, after) {
				t.Error(tier, codec, "rows differ")
			}
			time.Sleep(100 * time.Millisecond)
			s, _ := c.Stats()
			t.Log(tier, codec, s.Tables[0].CachedRows, log.String())
			c.Close()
		}
	}
}

func contentsOf(t *testing.T, c *cache.Cache) []byte {
	n := c.Rows(0)
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i)
	}
	out := make([]byte, int(n)*c.RowBytes(0))
	if err := c.Gather(context.Background(), cache.Request{Rows: all, Out: out}); err != nil {
		t.Fatal(err)
	}
	return out
}

func writeNPY(t *testing.T, path string, rows, columns int) {
	b := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns))
	for i := range rows * columns {
		b = append(b, byte(i), byte(i>>8), 0, 0x3f)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
