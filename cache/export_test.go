package cache

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// tuned is the tuning of all caches in tests.
var tuned = defaultTuning()

func init() { newTuning = func() *tuning { return tuned } }

// set sets a field of tuned until undo is called. No batch may be under way.
func set[T any](field *T, value T) (undo func()) {
	was := *field
	*field = value
	return func() { *field = was }
}

// OpenHostWith makes caches on the host backend use the devices of open until the test ends.
func OpenHostWith(t testing.TB, open func(n, workers int) []device.Device) {
	t.Cleanup(set(&tuned.openHost, open))
}

// AttachHostWith makes caches that attach to owners on the host backend use the devices of open until the test ends.
func AttachHostWith(t testing.TB, open func(n, workers int) []device.Device) {
	t.Cleanup(set(&tuned.attachHost, open))
}

// MergeUpdatesFrom makes caches merge logs of updates from so many bytes on, and try again after so long, until the test ends. No cache may be open.
func MergeUpdatesFrom(t testing.TB, bytes int64, wait time.Duration) {
	t.Cleanup(set(&tuned.mergeBytes, bytes))
	t.Cleanup(set(&tuned.mergeWait, wait))
}

// ReadMachineFrom makes caches read the description of the machine's memory nodes under root until the test ends.
func ReadMachineFrom(t testing.TB, root string) { t.Cleanup(set(&tuned.sysRoot, root)) }

// ShareAlways has the host's processors help with the misses of every batch that GPUs serve side by side, until the test ends.
func ShareAlways(t testing.TB) { t.Cleanup(set(&tuned.shareAlways, true)) }

// ServeApart makes every batch take the route side by side, with one launch a stage, until undo is called. No Gather may be under way.
func ServeApart() (undo func()) { return set(&tuned.Launches, read.SideBySide) }

// ServeHitsFirst is ServeApart for the route hits first.
func ServeHitsFirst() (undo func()) { return set(&tuned.Launches, read.HitsFirst) }

// ServeInRounds has absent rows of GPUs' batches pass in rounds of so many bytes, and misses be read in order, until undo is called.
func ServeInRounds(bytes int64) (undo func()) {
	undos := []func(){set(&tuned.RoundBytes, bytes), set(&tuned.CapturedRoundBytes, bytes), set(&tuned.OrderMisses, true)}
	return func() { undoAll(undos) }
}

// WritePooled has pooled batches of GPUs write their rows before they add them up, so many bytes at a time, until undo is called.
func WritePooled(bytes int) (undo func()) {
	undos := []func(){set(&tuned.WrittenBytes, bytes), set(&tuned.WriteAlways, true)}
	return func() { undoAll(undos) }
}

func undoAll(undos []func()) {
	for _, undo := range undos {
		undo()
	}
}

// EnqueueLate has the calls of the driver that enqueue a batch return when the GPU has ended it, until undo is called.
func EnqueueLate() (undo func()) { return set(&tuned.Enqueued, device.Stream.Synchronize) }

// LookForReplays has Check without waiting look for replays once in such a time, until undo is called. No cache with captured batches may be open. AwaitLooks waits
// for a look under way.
func LookForReplays(every time.Duration) (undo func()) { return set(&tuned.LookPause, every) }

// AwaitLooks is documented at LookForReplays.
func AwaitLooks(c *Cache) { c.set.Devices[0].AwaitLooks() }

// IsPlaceholder reports whether a provider is recognised as OpenTelemetry's global placeholder.
func IsPlaceholder(p any) bool { return observe.IsPlaceholder(p) }

// LetIn lets other processes in, as sharing a cache does.
func LetIn(c *Cache, r read.Readers) { c.set.SetReaders(r) }

// HoldEpoch begins a batch on the first device that ends when the returned function is called.
func HoldEpoch(c *Cache) (end func()) { return c.set.Devices[0].HoldEpoch() }

// Observe makes the telemetry calls of an untraced Gather on the first device. It reports whether the Gather would be traced.
func Observe(ctx context.Context, c *Cache) (traced bool) {
	o := c.watch.Gather(ctx, 0, 0, 1000)
	traced = o.Trace() != nil
	o.End(nil)
	return traced
}

// Traced returns a function that makes the telemetry calls of a traced Gather of 1,000 rows on the first device, with misses of rows.
func Traced(ctx context.Context, c *Cache, rows []int64) (run func()) {
	var misses []kernels.Found
	for _, r := range rows {
		reason := c.writer.Find(hashmap.Key(0, r)).Reason()
		misses = append(misses, kernels.Found{Word: uint64(r), Reason: uint32(reason)})
	}
	return func() {
		o := c.watch.Gather(ctx, 0, 0, 1000)
		now := time.Now()
		var times [read.NumPoints]time.Time
		for i := range times {
			times[i] = now
		}
		t := o.Trace()
		t.Misses = append(t.Misses, misses...)
		t.Stages(0, &times)
		o.End(nil)
	}
}

// ResidentImage returns what a resident table's memory holds, in text: for each device the words and, row by row, what the stored form has in the slot and in the
// overflow place. It waits until all rows lie there. REQUIRES: nothing changes the table.
func ResidentImage(t testing.TB, c *Cache, table int) string {
	t.Helper()
	r := c.set.Tables[table].Resident
	download := func(d int, from device.Buffer) []byte {
		if from.Bytes() != nil {
			return from.Bytes()
		}
		data := make([]byte, from.Size())
		if err := device.Download(c.set.Devices[d].Device, data, from); err != nil {
			t.Fatal(err)
		}
		return data
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		home := true
		for row := range c.Rows(table) {
			home = home && r.Batch(row) == 0
		}
		if err := c.Refresh(context.Background()); err != nil { // which also waits until the words of rows that are home are published
			t.Fatal(err)
		}
		if home {
			break
		}
		if time.Now().After(until) {
			t.Fatal("rows stay in the overlay")
		}
	}
	var b strings.Builder
	for d := range r.Rows.Devices {
		words, slots := download(d, r.Rows.Words[d]), download(d, r.Rows.Slots[d])
		overs := map[*kernels.Range][]byte{}
		for _, s := range r.Spans() {
			if overs[s.Range] == nil && s.Buddy[d].Size() > 0 {
				overs[s.Range] = download(s.Writer(d), s.Buddy[d])
			}
		}
		fmt.Fprintf(&b, "device %d\n", d)
		for local := range r.Rows.LocalRows(d) {
			row := r.Rows.Row(d, local)
			if row >= c.Rows(table) {
				break
			}
			word := buddy.Word(binary.LittleEndian.Uint64(words[local*buddy.WordBytes:]))
			s, n := r.Of(row), word.Stored(r.Rows.RowBytes)
			slot := slots[s.SlotOf(local):][:min(n, s.Target)]
			fmt.Fprintf(&b, "row %d word %016x slot %x", row, uint64(word), slot)
			if n > s.Target {
				fmt.Fprintf(&b, " over %x", overs[s.Range][s.OverflowOf(local, r.Rows.RowBytes):][:n-s.Target])
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
