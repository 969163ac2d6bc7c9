//go:build long && cuda && linux

package cache_test

import (
	"bytes"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestLong_LearnsOnGPU: as TestLong_LearnsInTheBackground, on a GPU, with 16 GiB in rows of 512 bytes (with -short, 8 MiB) and batches that lie in
// its memory, one every 20 ms. Gathers meanwhile take at most 3 % longer than those of the same cache while no cycle runs and nothing is sampled.
//
// TENSORCACHE_LEARN_HITS=4,8 has a cache learn from a quarter of the hits, and then another from an eighth; every miss is observed in both.
// The second one is left out if the first has taken long.
func TestLong_LearnsOnGPU(t *testing.T) {
	gputest.Require(t)
	size, pace := 16<<30, 20*time.Millisecond
	if testing.Short() {
		size, pace = 8<<20, time.Millisecond
	}
	const rowBytes, count = 512, 500
	rows := size / rowBytes
	begun := time.Now()
	say := func(format string, args ...any) {
		t.Helper()
		t.Logf("%5.1f s: "+format, append([]any{time.Since(begun).Seconds()}, args...)...)
	}
	l := &learning{rows, rows * 41 / (10 * count), count, cache.BackendCUDA, rowBytes, make([]byte, size)}
	batches, measured, timed := l.draw(l.batches, 1), l.draw(20, 2), l.draw(160, 3)
	say("drawn")
	best := l.counted(t, batches, measured)
	say("%.4f hit with true counts", best)
	d := gputest.Open(t)
	b := putBatch(t, d, batches[0], rowBytes)
	serve := func(c *cache.Cache, all [][]int64, pace time.Duration) (hitRate float64, median time.Duration) {
		before := stats(t, c)
		var took []time.Duration
		for _, ids := range all {
			if err := device.Upload(d, b.rows, cache.AsBytes(ids)); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			g, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: b.rows, DeviceOut: b.out})
			if err == nil {
				err = g.Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(begin))
			time.Sleep(pace)
		}
		slices.Sort(took)
		s := stats(t, c).Sub(before).Tables[0]
		return float64(s.Hits) / float64(s.Lookups), took[len(took)/2]
	}
	var learning time.Duration
	path := t.TempDir() + "/learnt"
	variants := strings.Split(os.Getenv("TENSORCACHE_LEARN_HITS"), ",")
	for i, variant := range variants {
		if i > 0 && time.Since(begun) > 45*time.Second {
			say("no time is left for 1/%s of the hits", variant)
			break
		}
		refresh := cache.RefreshOptions{Interval: 100 * time.Millisecond}
		if share, err := strconv.Atoi(variant); err == nil {
			refresh.Accesses, refresh.Misses = 1/float64(share), 1
		}
		var log cycleLog
		c := l.open(t, cache.Options{Refresh: refresh, Telemetry: cache.TelemetryOptions{
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}})
		say("opened")
		for at := 0; at < count; at += 100 {
			rate, took := serve(c, batches[at:at+100], pace)
			say("%.4f hit, batches %d to %d; a Gather takes %v", rate, at, at+99, took)
		}
		n := stats(t, c).Changes
		hitRate, _ := serve(c, measured, pace)
		_, took := serve(c, timed[:80], pace)
		say("%.4f after %d batches of %d, %.4f with true counts; %d cycles, %.2f of the accesses sampled, %d lost; a Gather takes %v", hitRate, count, l.batch,
			best, n.Cycles, float64(n.SampledAccesses)/float64(l.batch*count), n.LostAccesses, took)
		if i == 0 {
			learning = took
			if !testing.Short() && hitRate < best-0.01 {
				t.Errorf("hit rate %.4f, %.4f with true counts", hitRate, best)
			}
			if err := c.Snapshot(path); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		t.Log(log.String())
	}
	// The same rows in a cache that does not change.
	still := l.open(t, cache.Options{Admission: cache.AdmissionOptions{Restore: path}})
	rate, alone := serve(still, timed[80:], pace)
	say("median Gather %v while learning, %v without at %.4f", learning, alone, rate)
	if !testing.Short() && float64(learning) > 1.03*float64(alone) {
		t.Errorf("a Gather takes %v while the cache learns, %v otherwise", learning, alone)
	}
}

// cycleLog keeps a log's records of cycles, which say where their time goes.
type cycleLog struct{ bytes.Buffer }

func (l *cycleLog) Write(record []byte) (int, error) {
	if bytes.Contains(record, []byte("msg=refreshed")) {
		l.WriteByte('\n')
		l.Buffer.Write(bytes.TrimSpace(record))
	}
	return len(record), nil
}
