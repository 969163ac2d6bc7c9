package cache_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/pages"
)

// TestStats_HostTakenBytes: what a process with a table of short rows in pages has in physical memory is what the statistics say that the cache takes, to within a
// tenth and what a process takes without one. The part of the policy is bounded. Each host memory is tried in a process of its own.
func TestStats_HostTakenBytes(t *testing.T) {
	const rows, rowBytes, variable = 5_000_000, 16, "TENSORCACHE_TEST_TAKEN"
	if race.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	if given := strings.Split(os.Getenv(variable), "|"); len(given) == 3 {
		before, dir := resident(t), given[0]
		limit, err := strconv.ParseInt(given[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		devices, err := strconv.Atoi(given[2])
		if err != nil {
			t.Fatal(err)
		}
		table, err := cache.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, cache.Options{
			Tables: []cache.Table{table}, Budget: 16 << 20, Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: devices},
			Host: cache.HostOptions{Memory: limit}, Refresh: cache.RefreshOptions{Accesses: 1},
		})
		r := rand.New(rand.NewPCG(7, 7))
		out := make([]byte, 10_000*rowBytes)
		for range 20 {
			if err := c.Gather(ctx, cache.Request{Rows: randomRows(r, 10_000, rows), Out: out}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		s := stats(t, c)
		checked := int64(0)
		if built, ok := debug.ReadBuildInfo(); ok && slices.ContainsFunc(built.Settings, func(s debug.BuildSetting) bool { return s.Key == "-tags" && strings.Contains(s.Value, "invariants") }) {
			checked = 64 * (s.Tables[0].Tiers.HostRows + s.Tables[0].CachedRows) // allocators note every slot
		}
		fmt.Println("taken", s.HostTakenBytes, "resident", resident(t)-before-checked, "tier", s.Tables[0].Tiers.HostMemory)
		return
	}
	data := make([]byte, rows*rowBytes)
	for i := range data {
		data[i] = byte(i * 31 >> (i & 7))
	}
	dir := filepath.Join(t.TempDir(), "short.tc")
	w, err := pages.CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	source := func() (pages.Source, error) { return &rowsSource{data: data, rowBytes: rowBytes}, nil }
	if _, err := pages.Pack(ctx, source, w, pages.PackOptions{Name: "short", DType: dtype.Uint8, Codec: "none", PageBytes: 64 << 10, Stage: "none"}); err != nil {
		t.Fatal(err)
	}
	taken1 := int64(0) // by one device with the least host memory
	for _, given := range []struct{ memory, devices int64 }{{70 << 20, 1}, {70 << 20, 2}} {
		memory := given.memory
		child := exec.Command(os.Args[0], "-test.run=^TestStats_HostTakenBytes$")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d|%d", variable, dir, memory, given.devices))
		text, err := child.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		var taken, resident, tier int64
		if _, err := fmt.Sscanf(string(text), "taken %d resident %d tier %d", &taken, &resident, &tier); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		t.Logf("%d devices, host memory of %d MiB: %d in the tier, %d taken, %d resident", given.devices, memory>>20, tier>>20, taken>>20, resident>>20)
		const process = 48 << 20 // code, stacks, and what the Go heap keeps free
		if resident > taken+taken/10+process {
			t.Errorf("host memory of %d MiB: %d MiB are resident, where %d are said to be taken", memory>>20, resident>>20, taken>>20)
		}
		// A second device has its budget, row bits and lists in host memory, too, and the writer a hashmap of its own.
		if given.devices == 2 && (taken < taken1+16<<20 || taken > taken1+2*(16<<20+rows/4+16<<20)) {
			t.Errorf("%d bytes are taken with two devices, %d with one", taken, taken1)
		}
		if given.devices == 2 {
			continue
		}
		taken1 = cmp.Or(taken1, taken)
		// The policy, the ring's list, the copy of the index, row bits, device memory, overlay, buffers.
		if most := memory + memory/8 + memory/4 + rows*8 + rows/4 + 16<<20 + 16<<20 + 2*64<<20 + 8<<20; taken > most {
			t.Errorf("host memory of %d MiB: %d MiB are taken, want at most %d", memory>>20, taken>>20, most>>20)
		}
	}
}
