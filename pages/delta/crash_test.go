//go:build unix

package delta

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
)

// The variables of a child process that appends: the folder, and the write in which it ends.
const (
	childDir  = "DELTA_TEST_DIR"
	childKill = "DELTA_TEST_KILL"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := appendChild(dir); err != nil {
			fmt.Println("fault:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	syncFile, syncFolder = unsynced, unsyncedFolder
	os.Exit(m.Run())
}

// appendChild appends batches to a log of short segments, and prints the number of each that Append has returned for. It ends in the middle of
// a write.
func appendChild(dir string) error {
	kill, err := strconv.Atoi(os.Getenv(childKill))
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(kill), 1))
	writes := 0
	writeAt = func(f *os.File, b []byte, at int64) (int, error) {
		if writes++; writes == kill {
			f.WriteAt(b[:r.IntN(len(b)+1)], at)
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				self.Kill()
			}
			select {}
		}
		return f.WriteAt(b, at)
	}
	l, err := Open(dir, manifest(), Options{Durable: true, SegmentBytes: 500})
	if err != nil {
		return err
	}
	for i := int(l.mu.next); ; i++ {
		if err := l.Append(childBatch(i)); err != nil {
			return err
		}
		fmt.Println(i)
		if i%17 == 0 { // merged into pages, as far as the log knows
			s, err := l.Seal()
			if err != nil {
				return err
			}
			fmt.Println("sealed", i)
			if err := l.Drop(s); err != nil {
				return err
			}
		}
	}
}

// childBatch is the batch of a number: all its rows have that version.
func childBatch(number int) []Row {
	var rows []Row
	for i := range 1 + number%4 {
		rows = append(rows, version(int64((number*7+i*13)%100), number))
	}
	return rows
}

// TestLog_Killed: a process that appends is killed in the middle of a write, again and again. The log then has all batches that Append had
// returned for since the last merge, and no part of another.
func TestLog_Killed(t *testing.T) {
	if race.Enabled {
		t.Skip("starts a process of one goroutine for each write")
	}
	dir := t.TempDir()
	last, sealed := 0, 0
	for kill := 1; kill <= 40; kill++ {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("%s=%d", childKill, kill))
		out, err := c.CombinedOutput()
		if err == nil || err.Error() != "signal: killed" {
			t.Fatalf("write %d: %v, %s", kill, err, out)
		}
		lines := bufio.NewScanner(bytes.NewReader(out))
		for lines.Scan() {
			if n, ok := strings.CutPrefix(lines.Text(), "sealed "); ok {
				sealed, err = strconv.Atoi(n)
			} else {
				last, err = strconv.Atoi(lines.Text())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		l := open(t, dir, Options{Durable: true})
		end := int(l.mu.next) - 1
		if end != last && end != last+1 {
			t.Fatalf("write %d: the log ends with batch %d, the last that Append returned for is %d", kill, end, last)
		}
		last = end
		newest := map[int64]int{}
		for i := sealed + 1; i <= end; i++ {
			for _, x := range childBatch(i) {
				newest[x.Row] = i
			}
		}
		for row, number := range newest {
			got, ok, err := l.Read(row, nil)
			if err != nil || !ok || !bytes.Equal(got.Stored, version(row, number).Stored) {
				t.Fatalf("write %d: row %d: %v, %v, %v; want version %d", kill, row, got, ok, err, number)
			}
		}
		// The process may have ended between Seal and the end of Drop: then rows of before are still there.
		for row := range l.mu.index {
			got, _, err := l.Read(row, nil)
			if err != nil {
				t.Fatalf("write %d: row %d: %v", kill, row, err)
			}
			number := int(binary.LittleEndian.Uint64(got.Stored[8:]))
			if !slices.ContainsFunc(childBatch(number), func(x Row) bool { return x.Row == row && bytes.Equal(x.Stored, got.Stored) }) {
				t.Fatalf("write %d: row %d: %v was never appended", kill, row, got)
			}
		}
		l.Close()
	}
	if sealed == 0 || last < 100 {
		t.Errorf("%d batches, sealed at %d: too few", last, sealed)
	}
}
