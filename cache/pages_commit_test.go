package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
)

// syncWith has logs of updates synced by f until the test ends. Call it before the cache is made, and open the log first, as that syncs, too.
func syncWith(t testing.TB, f func(*os.File) error) {
	was := atomicfile.SyncFile
	atomicfile.SyncFile = f
	t.Cleanup(func() { atomicfile.SyncFile = was })
}

// gathered returns rows of the first table.
func gathered(t testing.TB, c *cache.Cache, rows []int64) []byte {
	t.Helper()
	out := make([]byte, len(rows)*c.RowBytes(0))
	if err := c.Gather(ctx, cache.Request{Rows: rows, Out: out}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestUpdate_DurableSharesSyncs: durable updates of 16 goroutines need a sixth of the syncs that each on its own would, or fewer.
func TestUpdate_DurableSharesSyncs(t *testing.T) {
	const workers, each, rowBytes = 16, 25, 64
	var syncs atomic.Int64
	syncWith(t, func(*os.File) error {
		syncs.Add(1)
		time.Sleep(4 * time.Millisecond) // a drive; long beside the rest of an update, also on a busy machine
		return nil
	})
	dir := packedFiles(t, normalTable(4096, 16, 1), rowBytes)
	c := openDirectory(t, dir, true)
	if err := c.Update(ctx, 0, []int64{4000}, make([]byte, rowBytes)); err != nil { // makes the log
		t.Fatal(err)
	}
	syncs.Store(0)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				row := int64(w*each + i)
				if err := c.Update(ctx, 0, []int64{row}, bytes.Repeat([]byte{byte(row)}, rowBytes)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d updates, %d syncs", workers*each, syncs.Load())
	if n := syncs.Load(); n > workers*each/3 { // an eighth, but for goroutines that come late
		t.Errorf("%d syncs for %d updates of %d goroutines", n, workers*each, workers)
	}
	var want []byte
	for row := range workers * each {
		want = append(want, bytes.Repeat([]byte{byte(row)}, rowBytes)...)
	}
	rows := allOf(workers * each)
	if !bytes.Equal(gathered(t, c, rows), want) {
		t.Error("other rows are served than were updated")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(gathered(t, openDirectory(t, dir, true), rows), want) {
		t.Error("other rows are served when the table is opened again")
	}
}

// heldSyncs counts syncs of logs, and has them wait.
type heldSyncs struct {
	syncs atomic.Int64
	held  atomic.Pointer[heldDrive]
}

type heldDrive struct {
	begun  chan struct{} // receives one for the first sync that is held
	answer chan struct{} // closed by release
	err    error         // of all syncs then
	once   sync.Once
}

func newHeldSyncs(t testing.TB) *heldSyncs {
	h := &heldSyncs{}
	syncWith(t, func(*os.File) error {
		h.syncs.Add(1)
		d := h.held.Load()
		if d == nil {
			return nil
		}
		select {
		case d.begun <- struct{}{}:
		default:
		}
		<-d.answer
		return d.err
	})
	return h
}

// hold has all syncs wait until release is called, or the test ends.
func (h *heldSyncs) hold(t testing.TB) *heldDrive {
	d := &heldDrive{begun: make(chan struct{}, 1), answer: make(chan struct{})}
	t.Cleanup(func() { d.release(nil) })
	h.held.Store(d)
	h.syncs.Store(0)
	return d
}

func (d *heldDrive) release(err error) {
	d.once.Do(func() {
		d.err = err
		close(d.answer)
	})
}

// written begins an update of a row, and returns when the log's file has it.
func written(t testing.TB, c *cache.Cache, row int64, data []byte) (result <-chan error) {
	t.Helper()
	before := stats(t, c).Tables[0].Tiers.UpdateBytesWritten
	done := make(chan error, 1)
	go func() { done <- c.Update(ctx, 0, []int64{row}, data) }()
	for deadline := time.Now().Add(time.Minute); stats(t, c).Tables[0].Tiers.UpdateBytesWritten == before; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the update of row %d is not written while another one is being synced", row)
		}
	}
	return done
}

// TestUpdate_SlowSyncHoldsNothing: while a sync of the log takes long, other updates of the table are written, and rows are read, withdrawn and ranked. What is not on the drive
// yet is not served. The next sync is for all updates that were written meanwhile. Close waits for them.
func TestUpdate_SlowSyncHoldsNothing(t *testing.T) {
	const rows, rowBytes = 600, 120
	h := newHeldSyncs(t)
	dir := packedFiles(t, newModel(rows, rows, rowBytes).source(), rowBytes)
	c := openDirectory(t, dir, true)
	ids := []int64{1, 2, 3, 4, 5, 6, 7, 8}
	old, fresh := bytes.Repeat([]byte{1}, rowBytes), bytes.Repeat([]byte{2}, rowBytes)
	if err := c.Update(ctx, 0, ids, bytes.Repeat(old, len(ids))); err != nil {
		t.Fatal(err)
	}
	settle(t, c)
	drive := h.hold(t)
	updates := []<-chan error{written(t, c, 1, fresh)}
	<-drive.begun
	for _, row := range ids[1:] {
		updates = append(updates, written(t, c, row, fresh))
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	beside := make(chan error, 1)
	go func() {
		if err := c.Update(canceled, 0, []int64{9}, fresh); !errors.Is(err, context.Canceled) {
			beside <- fmt.Errorf("update with a canceled context: %v", err)
			return
		}
		out := make([]byte, len(ids)*rowBytes)
		err := errors.Join(c.Gather(ctx, cache.Request{Rows: ids, Out: out}), c.Refresh(ctx), c.Invalidate(0, []int64{3, 100}))
		if err == nil && !bytes.Equal(out, bytes.Repeat(old, len(ids))) {
			err = errors.New("a version is served that is not on the drive")
		}
		beside <- err
	}()
	select {
	case err := <-beside:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("calls wait for a sync of other rows")
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	drive.release(nil)
	for i, u := range updates {
		if err := <-u; err != nil {
			t.Errorf("row %d: %v", ids[i], err)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if n := h.syncs.Load(); n != 3 {
		t.Errorf("%d syncs, want that of the first update, one of the others, and one of Close", n)
	}
	if !bytes.Equal(gathered(t, openDirectory(t, dir, true), ids), bytes.Repeat(fresh, len(ids))) {
		t.Error("other rows are served when the table is opened again")
	}
}

// TestUpdate_SyncFails: all updates that a failed sync was for fail, and so do later ones. Nothing of them is served. The log can be opened again, and has what was
// acknowledged before, and of the rest all of a row or nothing.
func TestUpdate_SyncFails(t *testing.T) {
	const rows, rowBytes = 600, 120
	h := newHeldSyncs(t)
	dir := packedFiles(t, newModel(rows, rows, rowBytes).source(), rowBytes)
	c := openDirectory(t, dir, true)
	ids := []int64{1, 2, 3, 4, 5, 6, 7, 8}
	old, fresh := bytes.Repeat([]byte{1}, rowBytes), bytes.Repeat([]byte{2}, rowBytes)
	if err := c.Update(ctx, 0, ids, bytes.Repeat(old, len(ids))); err != nil {
		t.Fatal(err)
	}
	drive := h.hold(t)
	updates := []<-chan error{written(t, c, 1, fresh)}
	<-drive.begun
	for _, row := range ids[1:6] {
		updates = append(updates, written(t, c, row, fresh))
	}
	drive.release(syscall.EIO)
	for i, u := range updates {
		if err := <-u; !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "cache: Update of table features: 0 of 1 rows are updated: ") {
			t.Errorf("row %d: %v", ids[i], err)
		}
	}
	h.held.Store(nil) // it works again, which proves nothing for what was written before
	if err := c.Update(ctx, 0, []int64{7}, fresh); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "the log must be opened again") {
		t.Errorf("after a failed sync: %v", err)
	}
	if n := h.syncs.Load(); n != 1 {
		t.Errorf("%d syncs, want none after the one that failed", n)
	}
	if !bytes.Equal(gathered(t, c, ids), bytes.Repeat(old, len(ids))) {
		t.Error("a version is served whose sync failed")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	c = openDirectory(t, dir, true)
	for i, row := range slices.Collect(slices.Chunk(gathered(t, c, ids), rowBytes)) {
		if !bytes.Equal(row, old) && (ids[i] > 6 || !bytes.Equal(row, fresh)) {
			t.Errorf("row %d: %x when the table is opened again", ids[i], row)
		}
	}
	if err := c.Update(ctx, 0, []int64{7}, fresh); err != nil {
		t.Error(err)
	}
}

// TestUpdate_FailedWriter: updates of a cache that cannot be changed any more do not go to the log: absent rows would be served as they are there, and cached ones not.
func TestUpdate_FailedWriter(t *testing.T) {
	const rows, rowBytes = 600, 120
	data := newModel(rows, rows, rowBytes).source()
	dir := packedFiles(t, data, rowBytes)
	c := openDirectory(t, dir, false)
	if err := c.Update(ctx, 0, []int64{1}, data[rowBytes:2*rowBytes]); err != nil { // makes the log
		t.Fatal(err)
	}
	e := &epochs{}
	e.left.Store(1 << 40)
	cache.LetIn(c, e)
	s := stats(t, c)
	if err := c.SetBudget(ctx, s.MetadataBytes+s.PayloadBytes/2); !errors.Is(err, errScripted) { // rows must give way
		t.Fatal(err)
	}
	before := s.Tables[0].Tiers
	if err := c.Update(ctx, 0, allRows(rows), make([]byte, rows*rowBytes)); !errors.Is(err, errScripted) {
		t.Errorf("Update: %v", err)
	}
	if after := stats(t, c).Tables[0].Tiers; after.UpdateBytesWritten != before.UpdateBytesWritten {
		t.Errorf("%d bytes are written to the log", after.UpdateBytesWritten-before.UpdateBytesWritten)
	}
	if !bytes.Equal(gathered(t, c, allRows(rows)), data) {
		t.Error("rows of a failed update are served")
	}
}

// holder is a process that holds back changes until it is let go.
type holder struct {
	writerFaults
	holds atomic.Bool
	let   chan struct{}
}

func (h *holder) Wait(ctx context.Context) error {
	select {
	case <-h.let:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *holder) Held() error {
	if h.holds.Load() {
		return fmt.Errorf("%w: scripted", cache.ErrHeld)
	}
	return nil
}

// TestUpdate_HeldBack: rows that the log has are served once a client lets go that has held back the update, however long that takes, or Close is called. While it does, others
// do not go to the log.
func TestUpdate_HeldBack(t *testing.T) {
	const rows, rowBytes, updated = 600, 120, 100
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprintf("closes %v", closes), func(t *testing.T) {
			data := newModel(rows, rows, rowBytes).source()
			dir := packedFiles(t, data, rowBytes)
			open := func() *cache.Cache {
				table, err := cache.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				return newCache(t, cache.Options{
					Tables: []cache.Table{table}, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: "host"}, Host: cache.HostOptions{Memory: 200 << 10, Overlay: 4_000},
				})
			}
			c := open()
			h := &holder{let: make(chan struct{})}
			cache.LetIn(c, h)
			fresh := noise(updated, rowBytes, 7)
			result := make(chan error, 1)
			go func() { result <- c.Update(ctx, 0, allRows(updated), fresh) }()
			for deadline := time.Now().Add(time.Minute); stats(t, c).Changes.UpdateWaits == 0; time.Sleep(100 * time.Microsecond) {
				if time.Now().After(deadline) {
					t.Fatal("the update does not wait")
				}
			}
			h.holds.Store(true)
			before := stats(t, c).Tables[0].Tiers
			if err := c.Update(ctx, 0, []int64{500}, fresh[:rowBytes]); !errors.Is(err, cache.ErrHeld) {
				t.Errorf("another update: %v", err)
			}
			if after := stats(t, c).Tables[0].Tiers; after.UpdateBytesWritten != before.UpdateBytesWritten {
				t.Error("the log has an update that was held back")
			}
			select {
			case err := <-result:
				t.Fatalf("the update ends: %v", err)
			case <-time.After(100 * time.Millisecond): // how often it asks whether it is held back: 20 ms
			}
			if closes {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				if err := <-result; !errors.Is(err, cache.ErrHeld) {
					t.Errorf("Update beside Close: %v", err)
				}
				c = open()
			} else {
				h.holds.Store(false)
				close(h.let)
				if err := <-result; err != nil {
					t.Error(err)
				}
			}
			copy(data, fresh)
			if !bytes.Equal(gathered(t, c, allRows(rows)), data) {
				t.Error("other rows are served than the log has")
			}
		})
	}
}
