//go:build long && unix

package pages

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestLong_PackKilledAnytime: a process that packs is killed at random moments, which need not be writes, and run again until it ends by itself, for
// many generations. What is opened in between is the generation before, or the new one, whole.
func TestLong_PackKilledAnytime(t *testing.T) {
	filesOf(t, childFileBytes)
	dir := filepath.Join(t.TempDir(), "table")
	r := rand.New(rand.NewPCG(1, 2))
	kills, longest := 0, 50*time.Millisecond
	var old []byte
	for generation := uint64(1); generation <= 25; generation++ {
		data := floats(crashRows, crashRowBytes/4, generation)
		for ended := false; !ended; {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("%s=%d", childSeed, generation))
			begin := time.Now()
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(time.Duration(r.Int64N(int64(longest))), func() { c.Process.Kill() })
			ended = c.Wait() == nil
			if timer.Stop(); !ended {
				kills++
				longest += time.Millisecond // so that there is an end on a busy machine, too
			} else {
				longest = time.Since(begin)
			}
			table, err := Open(dir, FileOptions{})
			if errors.Is(err, fs.ErrNotExist) && generation == 1 && !ended {
				continue
			}
			if err != nil {
				t.Fatalf("generation %d: %v", generation, err)
			}
			switch got := table.Manifest().Generation; {
			case got >= generation:
				expectRows(t, table, data, all(crashRows))
				ended = true // also when it was killed behind the commit
			case got == generation-1 && !ended:
				expectRows(t, table, old, all(crashRows))
			default:
				t.Fatalf("generation %d is read, %d was packed", got, generation)
			}
			if _, err := Verify(t.Context(), table.stores[0], nil); err != nil {
				t.Fatalf("generation %d: %v", generation, err)
			}
			table.Close()
		}
		old = data
	}
	if t.Logf("%d kills", kills); kills < 10 {
		t.Errorf("%d kills: too few", kills)
	}
}
