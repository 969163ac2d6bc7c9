package delta

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/pages"
)

const testRows, testRowBytes = 1000, 24

// manifest is that of a table for logs of tests.
func manifest() *pages.Manifest {
	return &pages.Manifest{Name: "x", Codec: "ibp4", DType: dtype.Float32, Rows: testRows, RowBytes: testRowBytes}
}

// unsynced and unsyncedFolder are syncFile and syncFolder in tests: what they write need not outlive the machine.
func unsynced(*os.File) error     { return nil }
func unsyncedFolder(string) error { return nil }

// version returns a version of a row: raw if the number is even, "encoded" and shorter otherwise.
func version(row int64, number int) Row {
	b := make([]byte, testRowBytes)
	binary.LittleEndian.PutUint64(b, uint64(row))
	binary.LittleEndian.PutUint64(b[8:], uint64(number))
	if number%2 == 1 {
		return Row{row, b[:16+number%8], true}
	}
	return Row{row, b, false}
}

func open(t testing.TB, dir string, o Options) *Log {
	t.Helper()
	l, err := Open(dir, manifest(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// expect compares the log with the newest versions.
func expect(t testing.TB, l *Log, want map[int64]Row) {
	t.Helper()
	bytes_ := int64(0)
	for row := range int64(testRows) {
		w, there := want[row]
		got, ok, err := l.Read(row, nil)
		stored, compressed, found := l.Find(row)
		if err != nil || ok != there || found != there || there && (stored != len(w.Stored) || compressed != w.Compressed) {
			t.Fatalf("row %d: %v, %v, want %v", row, ok, err, there)
		}
		if there && (got.Row != row || got.Compressed != w.Compressed || !bytes.Equal(got.Stored, w.Stored)) {
			t.Fatalf("row %d: %v, want %v", row, got, w)
		}
		bytes_ += int64(len(w.Stored))
	}
	if s := l.Stats(); s.Rows != int64(len(want)) || s.StoredBytes != bytes_ {
		t.Fatalf("%+v, want %d rows of %d bytes", s, len(want), bytes_)
	}
}

// fill appends batches of versions, and returns the newest.
func fill(t testing.TB, l *Log, batches int, want map[int64]Row, r *rand.Rand) {
	t.Helper()
	for range batches {
		var rows []Row
		for range 1 + r.IntN(5) {
			rows = append(rows, version(r.Int64N(testRows), r.IntN(1000)))
		}
		if err := l.Append(rows); err != nil {
			t.Fatal(err)
		}
		for _, x := range rows {
			want[x.Row] = x
		}
	}
}

func TestLog_FindsNewestVersions(t *testing.T) {
	for _, o := range []Options{{}, {Durable: true}, {SegmentBytes: 1000}, {SegmentBytes: 1}} {
		dir := filepath.Join(t.TempDir(), "delta")
		want, r := map[int64]Row{}, rand.New(rand.NewPCG(1, 1))
		for range 4 {
			l := open(t, dir, o)
			expect(t, l, want)
			fill(t, l, 50, want, r)
			expect(t, l, want)
			if s := l.Stats(); o.SegmentBytes == 0 && s.Segments != 1 || o.SegmentBytes == 1 && s.Segments < 50 || s.CutBytes != 0 || s.AppendedRows < 50 || s.LogBytes <= s.AppendedBytes {
				t.Errorf("%+v", s)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestLog_Refuses(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	for _, bad := range []Row{{-1, make([]byte, testRowBytes), false}, {testRows, make([]byte, testRowBytes), false}, {1, make([]byte, 3), false}, {1, make([]byte, testRowBytes), true}} {
		if err := l.Append([]Row{version(0, 0), bad}); err == nil {
			t.Errorf("row %d of %d bytes was taken", bad.Row, len(bad.Stored))
		}
	}
	expect(t, l, nil)
	if _, err := Open(dir, manifest(), Options{}); err == nil || !strings.Contains(err.Error(), "another process has the log") {
		t.Errorf("%v", err)
	}
	if err := l.Append([]Row{version(1, 1)}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := l.Append([]Row{version(1, 1)}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
	other := manifest()
	other.Parts[pages.PartMetadata].SHA256[0] = 1
	if _, err := Open(dir, other, Options{}); err == nil || !strings.Contains(err.Error(), "must be that of this table and codec") {
		t.Errorf("%v", err)
	}
}

// TestLog_OtherTable: a log without rows does not keep the next table in the folder from having one; a log with rows is not thrown away.
func TestLog_OtherTable(t *testing.T) {
	dir := t.TempDir()
	other := manifest()
	other.Codec = "rank"
	l := open(t, dir, Options{})
	if _, err := l.Seal(); err != nil { // there are two segments now
		t.Fatal(err)
	}
	l.Close()
	l, err := Open(dir, other, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append([]Row{version(3, 2)}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := Open(dir, manifest(), Options{}); err == nil || !strings.Contains(err.Error(), "must be that of this table and codec") {
		t.Errorf("%v", err)
	}
	if l, err = Open(dir, other, Options{}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	expect(t, l, map[int64]Row{3: version(3, 2)})
}

// TestLog_SegmentNotMade: a segment that could not be made leaves nothing behind, and the log goes on in the one before, also when it is
// opened again.
func TestLog_SegmentNotMade(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	want := map[int64]Row{}
	fill(t, l, 5, want, rand.New(rand.NewPCG(8, 8)))
	syncFolder = func(string) error { return syscall.EIO }
	_, err := l.Seal()
	syncFolder = unsyncedFolder
	if !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	fill(t, l, 5, want, rand.New(rand.NewPCG(9, 9)))
	l.Close()
	l = open(t, dir, Options{})
	expect(t, l, want)
}

// TestLog_OpenSyncs: what a durable log finds when it is opened is on the drive, also what was appended without a sync.
func TestLog_OpenSyncs(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	want := map[int64]Row{}
	fill(t, l, 5, want, rand.New(rand.NewPCG(7, 7)))
	l.Close()
	synced := map[string]bool{}
	syncFile = func(f *os.File) error { synced[filepath.Base(f.Name())] = true; return nil }
	defer func() { syncFile = unsynced }()
	expect(t, open(t, dir, Options{Durable: true}), want)
	if !synced[segmentName(1)] {
		t.Errorf("synced: %v", synced)
	}
}

// TestLog_TornEnd: a log that was cut at any byte has the batches before, and goes on.
func TestLog_TornEnd(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{Durable: true})
	var ends []int64
	for i := range 4 {
		ends = append(ends, l.Stats().SegmentBytes)
		if err := l.Append([]Row{version(int64(i), 2), version(10, i)}); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	whole, err := os.ReadFile(filepath.Join(dir, segmentName(1)))
	if err != nil {
		t.Fatal(err)
	}
	for cut := int64(segmentHeader); cut <= int64(len(whole)); cut++ {
		for _, garbage := range []int{0, 50} {
			if garbage > 0 && cut%7 != 0 {
				continue
			}
			again := t.TempDir()
			if err := os.WriteFile(filepath.Join(again, segmentName(1)), append(bytes.Clone(whole[:cut]), bytes.Repeat([]byte{0xee}, garbage)...), 0o644); err != nil {
				t.Fatal(err)
			}
			l := open(t, again, Options{})
			want := map[int64]Row{}
			end := ends[0]
			for i := range 4 {
				if next := append(ends, int64(len(whole)))[i+1]; cut >= next {
					want[int64(i)], want[10], end = version(int64(i), 2), version(10, i), next
				}
			}
			expect(t, l, want)
			if s := l.Stats(); s.CutBytes != cut-end+int64(garbage) {
				t.Fatalf("of %d bytes and %d more %d were cut off, want %d", cut, garbage, s.CutBytes, cut-end+int64(garbage))
			}
			fill(t, l, 3, want, rand.New(rand.NewPCG(2, 2)))
			l.Close()
			expect(t, open(t, again, Options{}), want)
		}
	}
}

// TestLog_DamagedInside: what is damaged before a durable batch, or in a segment that another follows, is an error. In a log that promised
// nothing it is cut off.
func TestLog_DamagedInside(t *testing.T) {
	for _, c := range []struct {
		o       Options
		refused bool
	}{{Options{Durable: true}, true}, {Options{}, false}, {Options{SegmentBytes: 200}, true}} {
		for _, damage := range []func(path string, at int64) error{
			func(path string, at int64) error {
				f, err := os.OpenFile(path, os.O_RDWR, 0)
				if err != nil {
					return err
				}
				defer f.Close()
				var b [1]byte
				f.ReadAt(b[:], at)
				b[0] ^= 1
				_, err = f.WriteAt(b[:], at)
				return err
			},
		} {
			for _, at := range []int64{segmentHeader, segmentHeader + 5, segmentHeader + 9, segmentHeader + 20, segmentHeader + batchHeader + 8, segmentHeader + batchHeader + 20} {
				dir := t.TempDir()
				l := open(t, dir, c.o)
				fill(t, l, 10, map[int64]Row{}, rand.New(rand.NewPCG(3, 3)))
				l.Close()
				if err := damage(filepath.Join(dir, segmentName(1)), at); err != nil {
					t.Fatal(err)
				}
				l, err := Open(dir, manifest(), Options{})
				if c.refused != errors.Is(err, ErrCorrupt) || !c.refused && (err != nil || l.Stats().Rows != 0 || l.Stats().CutBytes == 0) {
					t.Errorf("%+v, byte %d: %v", c.o, at, err)
				}
				if l != nil {
					l.Close()
				}
			}
		}
	}
	dir := t.TempDir()
	l := open(t, dir, Options{SegmentBytes: 100})
	fill(t, l, 10, map[int64]Row{}, rand.New(rand.NewPCG(3, 3)))
	l.Close()
	os.Remove(filepath.Join(dir, segmentName(2)))
	if _, err := Open(dir, manifest(), Options{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "a segment is missing") {
		t.Errorf("%v", err)
	}
}

// TestLog_ReadFindsDamage: a row whose bytes changed on the drive after the log was opened is an error, not a wrong row.
func TestLog_ReadFindsDamage(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	if err := l.Append([]Row{version(1, 2), version(2, 2)}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, segmentName(1)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte{99}, segmentHeader+batchHeader+2*rowEntry+3)
	f.Close()
	if _, ok, err := l.Read(1, nil); !ok || !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v, %v", ok, err)
	}
	if r, ok, err := l.Read(2, nil); !ok || err != nil || !bytes.Equal(r.Stored, version(2, 2).Stored) {
		t.Errorf("%v, %v, %v", r, ok, err)
	}
}

// TestLog_DiskFull: a batch that does not fit is an error and leaves nothing behind; later ones that fit are appended.
func TestLog_DiskFull(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{Durable: true})
	want := map[int64]Row{}
	fill(t, l, 5, want, rand.New(rand.NewPCG(4, 4)))
	writeAt = func(f *os.File, b []byte, at int64) (int, error) {
		n, _ := f.WriteAt(b[:len(b)/2], at)
		return n, syscall.ENOSPC
	}
	err := l.Append([]Row{version(7, 7)})
	writeAt = (*os.File).WriteAt
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	expect(t, l, want)
	fill(t, l, 5, want, rand.New(rand.NewPCG(5, 5)))
	l.Close()
	l = open(t, dir, Options{})
	expect(t, l, want)
	if s := l.Stats(); s.CutBytes != 0 {
		t.Errorf("%+v", s)
	}
}

// TestLog_SyncFails: rows whose sync failed are not found, nothing is written behind them, and Seal does not wait for them.
func TestLog_SyncFails(t *testing.T) {
	l := open(t, t.TempDir(), Options{Durable: true})
	want := map[int64]Row{}
	fill(t, l, 5, want, rand.New(rand.NewPCG(6, 6)))
	syncFile = func(*os.File) error { return syscall.EIO }
	err := l.Append([]Row{version(7, 7)})
	syncFile = unsynced
	if !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	expect(t, l, want)
	if err := l.Append([]Row{version(7, 8)}); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "must be opened again") {
		t.Errorf("%v", err)
	}
	if _, err := l.Seal(); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
}

// TestLog_ReadsBesideASlowDrive: while a batch is being written, or the next segment is being made, and the drive does not answer, rows are found.
func TestLog_ReadsBesideASlowDrive(t *testing.T) {
	l := open(t, t.TempDir(), Options{SegmentBytes: 1})
	if err := l.Append([]Row{version(7, 7)}); err != nil {
		t.Fatal(err)
	}
	hangs, goOn := make(chan struct{}), make(chan struct{})
	write := writeAt
	defer func() { syncFile, writeAt = unsynced, write }()
	for _, hang := range []func(){
		func() { syncFile = func(*os.File) error { hangs <- struct{}{}; <-goOn; return nil } },
		func() {
			syncFile = unsynced
			writeAt = func(f *os.File, b []byte, at int64) (int, error) { hangs <- struct{}{}; <-goOn; return write(f, b, at) }
		},
	} {
		hang()
		appended := make(chan error)
		go func() { appended <- l.Append([]Row{version(8, 8)}) }()
		<-hangs
		read := make(chan error, 1)
		go func() {
			_, ok, err := l.Read(7, nil)
			if _, _, found := l.Find(7); err == nil && (!ok || !found || l.Stats().Rows == 0) {
				err = errors.New("row 7 is not found")
			}
			read <- err
		}()
		select {
		case err := <-read:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("a read waits for the drive")
		}
		for {
			select {
			case <-hangs:
				continue
			case goOn <- struct{}{}:
				continue
			case err := <-appended:
				if err != nil {
					t.Fatal(err)
				}
			}
			break
		}
	}
	expect(t, l, map[int64]Row{7: version(7, 7), 8: version(8, 8)})
}

// TestLog_AppendersShareSyncs: goroutines that append at once need fewer syncs than batches, and lose nothing.
func TestLog_AppendersShareSyncs(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{Durable: true})
	var mu sync.Mutex
	syncs := 0
	syncFile = func(f *os.File) error {
		mu.Lock()
		syncs++
		mu.Unlock()
		return f.Sync()
	}
	defer func() { syncFile = unsynced }()
	const goroutines, each = 16, 25
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				if err := l.Append([]Row{version(int64(g), i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if mu.Lock(); syncs >= goroutines*each {
		t.Errorf("%d syncs for %d batches", syncs, goroutines*each)
	}
	mu.Unlock()
	want := map[int64]Row{}
	for g := range int64(goroutines) {
		want[g] = version(g, each-1)
	}
	expect(t, l, want)
	l.Close()
	expect(t, open(t, dir, Options{}), want)
}

// TestLog_OneSyncAtATime: a segment is never synced by two goroutines at once, not by a rotation either. Of two such syncs, the system tells one alone that it could not write.
func TestLog_OneSyncAtATime(t *testing.T) {
	l := open(t, t.TempDir(), Options{Durable: true, SegmentBytes: 500})
	var mu sync.Mutex
	syncing := map[string]bool{}
	syncFile = func(f *os.File) error {
		name := f.Name()
		mu.Lock()
		if syncing[name] {
			t.Errorf("%s is synced twice at once", filepath.Base(name))
		}
		syncing[name] = true
		mu.Unlock()
		time.Sleep(100 * time.Microsecond) // a drive
		mu.Lock()
		syncing[name] = false
		mu.Unlock()
		return nil
	}
	defer func() { syncFile = unsynced }()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if err := l.Append([]Row{version(int64(g), i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if l.Stats().Segments < 10 {
		t.Errorf("%d segments, want rotations beside the syncs", l.Stats().Segments)
	}
}

// TestLog_ShownLater: batches stand in the log in the order of AppendAsync, whichever is synced or shown first, and are found when they are shown. Seal, merges and
// compaction wait for all of them, unless the context ends.
func TestLog_ShownLater(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{Durable: true})
	first, showFirst, err := l.AppendAsync([]Row{version(7, 1)})
	if err != nil {
		t.Fatal(err)
	}
	second, showSecond, err := l.AppendAsync([]Row{version(7, 2), version(8, 2)})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, l, map[int64]Row{})
	if err := second(); err != nil {
		t.Fatal(err)
	}
	expect(t, l, map[int64]Row{})
	showSecond()
	want := map[int64]Row{7: version(7, 2), 8: version(8, 2)}
	expect(t, l, want)
	ended, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	if err := l.Compact(ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("compaction beside a batch that is not shown: %v", err)
	}
	sealed := make(chan error, 1)
	go func() {
		s, err := l.Seal()
		if err == nil && !slices.Equal(s.Rows(), []int64{7, 8}) {
			err = fmt.Errorf("rows %v are sealed", s.Rows())
		}
		sealed <- err
	}()
	if err := first(); err != nil {
		t.Fatal(err)
	}
	showFirst()
	if err := <-sealed; err != nil {
		t.Error(err)
	}
	expect(t, l, want)
	l.Close()
	expect(t, open(t, dir, Options{}), want)
}

// TestLog_SyncPanics: a batch whose sync has panicked is not shown, and Seal does not wait for it.
func TestLog_SyncPanics(t *testing.T) {
	l := open(t, t.TempDir(), Options{Durable: true})
	defer func() { syncFile = unsynced }()
	syncFile = func(*os.File) error { panic("scripted") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		l.Append([]Row{version(7, 1)})
	}()
	syncFile = unsynced
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if s, err := l.seal(limited); err != nil || len(s.Rows()) != 0 {
		t.Errorf("sealed %v: %v", s, err)
	}
}

// TestLog_SealAndDrop: what was sealed is merged and dropped, and only that, while rows are appended and read.
func TestLog_SealAndDrop(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{SegmentBytes: 2000})
	var mu sync.Mutex
	merged, newest := map[int64]int{}, map[int64]int{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range int64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(g)))
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				row := r.Int64N(50)*4 + g // each row is one goroutine's
				if err := l.Append([]Row{version(row, i)}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				newest[row] = i
				mu.Unlock()
				got, ok, err := l.Read(row, nil)
				if err != nil || ok && !bytes.Equal(got.Stored, version(row, i).Stored) {
					t.Errorf("row %d: %v, %v", row, got, err)
				}
			}
		})
	}
	for i := range int64(20) {
		for l.Stats().AppendedRows < 100*(i+1) {
			runtime.Gosched()
		}
		s, err := l.Seal()
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range s.Rows() {
			b, _, err := s.Read(i, nil)
			if err != nil {
				t.Fatal(err)
			}
			merged[row] = int(binary.LittleEndian.Uint64(b[8:]))
		}
		if err := l.Drop(s); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	for row, number := range newest {
		got, ok, err := l.Read(row, nil)
		if err != nil {
			t.Fatal(err)
		}
		is := merged[row]
		if ok {
			is = int(binary.LittleEndian.Uint64(got.Stored[8:]))
		}
		if is != number {
			t.Errorf("row %d has version %d, want %d", row, is, number)
		}
	}
	if s := l.Stats(); s.Segments > 1000 {
		t.Errorf("%+v", s)
	}
	left := l.Stats().Rows
	l.Close()
	if l = open(t, dir, Options{}); l.Stats().Rows != left {
		t.Errorf("%d rows after opening, %d before", l.Stats().Rows, left)
	}
}

// TestLog_MergedIntoPages: a crash after the commit of the merged generation and before Drop changes nothing; Drop leaves the rest.
func TestLog_MergedIntoPages(t *testing.T) {
	dir := t.TempDir()
	data := make([]byte, testRows*testRowBytes)
	w, err := pages.CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := pages.Pack(t.Context(), func() (pages.Source, error) { return source(data), nil }, w, pages.PackOptions{Name: "x", DType: dtype.Float32, Codec: "none", Stage: "none"})
	if err != nil {
		t.Fatal(err)
	}
	openLog := func(m *pages.Manifest) *Log {
		t.Helper()
		l, err := Open(filepath.Join(dir, "delta"), m, Options{Durable: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	l := openLog(m)
	for row := range int64(100) {
		if err := l.Append([]Row{version(row*3, 2)}); err != nil {
			t.Fatal(err)
		}
		copy(data[row*3*testRowBytes:], version(row*3, 2).Stored)
	}
	sealed, err := l.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append([]Row{version(3, 4)}); err != nil { // while it is merged
		t.Fatal(err)
	}
	table, err := pages.Open(dir, pages.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if w, err = pages.CreateFiles(dir); err != nil {
		t.Fatal(err)
	}
	next, done, err := pages.Rewrite(t.Context(), table.Stores()[0], w, sealed, nil)
	if err != nil || done.Rows != 100 || done.UpdateBytes != 100*testRowBytes {
		t.Fatal(done, err)
	}
	l.Close()
	l = openLog(next) // as after a crash
	if s := l.Stats(); s.Rows != 100 {
		t.Errorf("%+v", s)
	}
	if sealed, err = l.Seal(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append([]Row{version(6, 6)}); err != nil {
		t.Fatal(err)
	}
	if err := l.Drop(sealed); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(); s.Rows != 1 || s.Segments != 1 {
		t.Errorf("%+v", s)
	}
	after, err := pages.Open(dir, pages.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	rows := make([]int64, testRows)
	for i := range rows {
		rows[i] = int64(i)
	}
	after.ReadRows(t.Context(), rows, func(i int, stored []byte, _ bool, err error) {
		if err != nil || !bytes.Equal(stored, data[i*testRowBytes:][:testRowBytes]) {
			t.Errorf("row %d: %v, %v", i, stored, err)
		}
	})
}

// source is a pages.Source of rows of testRowBytes.
type source []byte

func (s source) Rows() int     { return len(s) / testRowBytes }
func (s source) RowBytes() int { return testRowBytes }
func (s source) Close() error  { return nil }
func (s source) Read(dst []byte) (int, error) {
	return 0, errors.New("not read in order")
}
func (s source) ReadFrom(row int64, dst []byte) error {
	copy(dst, s[row*testRowBytes:])
	return nil
}

// FuzzLog runs commands on a log and on a map: append, read, open again, seal and drop, and tear the end.
func FuzzLog(f *testing.F) {
	f.Add([]byte("abcabcRabcSabcTabc"), uint16(300))
	f.Add(bytes.Repeat([]byte{1, 2, 3, 200, 4, 210, 5, 220, 6}, 10), uint16(1))
	f.Fuzz(func(t *testing.T, commands []byte, segmentBytes uint16) {
		dir := t.TempDir()
		o := Options{SegmentBytes: int64(segmentBytes)}
		l, err := Open(dir, manifest(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { l.Close() }()
		want := map[int64]Row{}
		for i, c := range commands {
			switch {
			case c < 200: // appends one row, twice
				if err := l.Append([]Row{version(int64(c), i), version(int64(c), i+1)}); err != nil {
					t.Fatal(err)
				}
				want[int64(c)] = version(int64(c), i+1)
			case c < 215, c >= 245:
				l.Close()
				if c >= 245 { // half a batch behind the end
					numbers, err := listSegments(dir)
					if err != nil {
						t.Fatal(err)
					}
					file, err := os.OpenFile(filepath.Join(dir, segmentName(numbers[len(numbers)-1])), os.O_APPEND|os.O_WRONLY, 0)
					if err != nil {
						t.Fatal(err)
					}
					b := encodeBatch(nil, 1<<40, true, 0, []Row{version(1, 0)})
					file.Write(b[:len(b)-int(c-244)])
					file.Close()
				}
				if l, err = Open(dir, manifest(), o); err != nil {
					t.Fatal(err)
				}
			default:
				s, err := l.Seal()
				if err != nil {
					t.Fatal(err)
				}
				if got, want := fmt.Sprint(len(s.Rows())), fmt.Sprint(len(want)); got != want {
					t.Fatalf("%s rows were sealed, want %s", got, want)
				}
				if c%2 == 0 {
					if err := l.Drop(s); err != nil {
						t.Fatal(err)
					}
					clear(want)
				}
			}
		}
		expect(t, l, want)
	})
}

// FuzzReplay opens a log whose segment is anything behind its header.
func FuzzReplay(f *testing.F) {
	f.Add(encodeBatch(encodeBatch(nil, 1, false, 0, []Row{version(1, 1), version(2, 2)}), 2, true, 1, []Row{version(1, 4)}), true)
	f.Fuzz(func(t *testing.T, b []byte, sealChecksum bool) {
		if n := batchBytes(b); sealChecksum && n > 0 && n <= int64(len(b)) { // reaches what lies behind the check
			rows := binary.LittleEndian.Uint32(b[4:])
			if int64(rowEntry)*int64(rows)+batchHeader <= n {
				b = bytes.Clone(b)
				sum := checksum(b[:28])
				binary.LittleEndian.PutUint32(b[28:], update(sum, b[batchHeader:][:rowEntry*rows]))
			}
		}
		dir := t.TempDir()
		h := header{manifest().Encoding(), 1, 1}
		if err := os.WriteFile(filepath.Join(dir, segmentName(1)), append(h.encode(), b...), 0o644); err != nil {
			t.Fatal(err)
		}
		l, err := Open(dir, manifest(), Options{})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		defer l.Close()
		for row := range l.mu.index {
			if r, ok, err := l.Read(row, nil); err != nil || ok && (r.Compressed == (len(r.Stored) == testRowBytes)) {
				t.Fatalf("row %d: %v, %v", row, r, err)
			}
		}
	})
}

// TestEmpty: a log is empty until rows are appended, and when they have been merged.
func TestEmpty(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "delta")
	check := func(want bool) {
		t.Helper()
		if empty, err := Empty(dir); err != nil || empty != want {
			t.Errorf("empty: %v, %v, want %v", empty, err, want)
		}
	}
	check(true)
	l := open(t, dir, Options{})
	check(true)
	if err := l.Append([]Row{version(3, 1)}); err != nil {
		t.Fatal(err)
	}
	check(false)
	sealed, err := l.Seal()
	if err != nil {
		t.Fatal(err)
	}
	check(false)
	if err := errors.Join(l.Drop(sealed), l.Close()); err != nil {
		t.Fatal(err)
	}
	check(true)
}
