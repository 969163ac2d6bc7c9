package cache_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/foreign"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
)

// mapped returns memory of mmap that holds data and is followed by a page that cannot be read.
func mapped(t testing.TB, data []byte) []byte {
	t.Helper()
	page := os.Getpagesize()
	whole := (len(data) + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, whole+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := unix.Mprotect(mem[whole:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	copy(mem, data)
	return mem[:len(data):len(data)]
}

func adopt(t testing.TB, name string, mem []byte, rowBytes int) cache.Table {
	t.Helper()
	table, err := cache.Adopt(name, dtype.Float32, mem, rowBytes)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// onBackends runs a test on the host backend, and on a GPU if there is one.
func onBackends(t *testing.T, test func(t *testing.T, backend cache.Backend)) {
	t.Run("host", func(t *testing.T) { test(t, cache.BackendHost) })
	t.Run("cuda", func(t *testing.T) {
		gputest.Require(t)
		test(t, cache.BackendCUDA)
	})
}

// TestAdopt_RowsAndRestore: rows of adopted memory are compressed in their places and right, before and after updates, up to the end of the
// memory's last page, also if it ends within a sector of 32 bytes that a GPU reads
// (701 × 132). After Close the memory has them again with RestoreOnClose, and is still the tier without.
func TestAdopt_RowsAndRestore(t *testing.T) {
	race.SkipSequential(t)
	onBackends(t, func(t *testing.T, backend cache.Backend) {
		for _, codec := range []cache.Codec{"none", "ibp4", "ibp8", "rank", "zipnn", "sleek", "ndzip", "sparse", "auto"} {
			for _, size := range []struct{ rows, rowBytes int }{{512, 512}, {1024, 64}, {701, 132}, {16, 1 << 14}} {
				for _, restore := range []bool{true, false} {
					if testing.Short() && (restore != (size.rowBytes == 512) || size.rowBytes == 132 && codec != "none" || size.rowBytes > 4096 && codec != "none" && codec != "zipnn") {
						continue // on the emulated GPU, training IBP on long rows takes a minute
					}
					t.Run(fmt.Sprintf("%s/%dx%d/%v", codec, size.rows, size.rowBytes, restore), func(t *testing.T) {
						data := gputest.FloatRows(dtype.Float32, size.rows, size.rowBytes, 1)
						mem := mapped(t, data)
						table := adopt(t, "x", mem, size.rowBytes)
						if restore {
							table = table.RestoreOnClose()
						}
						c, err := cache.New(cache.Options{
							Tables: []cache.Table{table}, Budget: int64(len(data)/4 + 60_000), Codec: codec, Devices: cache.DeviceOptions{Backend: backend},
						})
						if err != nil && strings.Contains(err.Error(), "element type not served") {
							t.Skip(err)
						}
						if err != nil {
							t.Fatal(err)
						}
						defer c.Close()
						s := stats(t, c)
						if s.HostBytes != int64(len(mem)) || codec != "none" && codec != "auto" && codec != "ndzip" && bytes.Equal(mem, data) {
							t.Errorf("%d bytes in the host tier, %d adopted; or they have not changed", s.HostBytes, len(mem))
						}
						gatherAll(t, c, data)
						// The last row shrinks, and others change from rows that do not to such that do.
						n := int64(size.rows)
						rows := []int64{n - 1, 0, 3, n - 2, n / 2}
						var update []byte
						for i, r := range rows {
							row := data[r*int64(size.rowBytes):][:size.rowBytes]
							copy(row, data[(int64(i)+7)%n*int64(size.rowBytes):][:size.rowBytes])
							update = append(update, row...)
						}
						if err := c.Update(ctx, 0, rows, update); err != nil {
							t.Fatal(err)
						}
						gatherAll(t, c, data)
						if len(codec)%2 == 0 { // half of the caches are closed while the rows are in the overlay
							settle(t, c)
							gatherAll(t, c, data)
						}
						tier := bytes.Clone(mem)
						if err := c.Close(); err != nil {
							t.Fatal(err)
						}
						if restore && !bytes.Equal(mem, data) {
							t.Error("Close has not restored the rows")
						}
						if !restore && len(codec)%2 == 0 && !bytes.Equal(mem, tier) {
							t.Error("Close has changed the memory")
						}
						again, err := cache.New(cache.Options{Tables: []cache.Table{adopt(t, "x", mem, size.rowBytes)}, Budget: 1 << 20, Codec: "none", Devices: cache.DeviceOptions{Backend: backend}})
						if err != nil {
							t.Fatalf("memory adopted again: %v", err)
						}
						again.Close()
					})
				}
			}
		}
	})
}

// TestAdopt_TwoTablesInOneMapping: tables may share a mapping, but no byte of it.
func TestAdopt_TwoTablesInOneMapping(t *testing.T) {
	onBackends(t, func(t *testing.T, backend cache.Backend) {
		const rowBytes, rows = 256, 400
		first, second := gputest.FloatRows(dtype.Float32, rows, rowBytes, 1), gputest.FloatRows(dtype.Float32, rows, rowBytes, 2)
		page := os.Getpagesize()
		behind := (len(first) + page - 1) / page * page
		mem := mapped(t, append(append(bytes.Clone(first), make([]byte, behind-len(first))...), second...))
		a, b := mem[:len(first)], mem[behind:]
		o := cache.Options{
			Tables: []cache.Table{adopt(t, "a", a, rowBytes).RestoreOnClose(), adopt(t, "b", b, rowBytes).RestoreOnClose()},
			Budget: 90_000, Codec: "ibp4", Devices: cache.DeviceOptions{Backend: backend},
		}
		c := newCache(t, o)
		gatherAll(t, c, first)
		ids, out := []int64{0, 1, rows - 1}, make([]byte, 3*rowBytes)
		if err := c.Gather(ctx, cache.Request{Table: 1, Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
		checkRows(t, second, rowBytes, ids, out)
		o.Tables = []cache.Table{adopt(t, "c", mem[:len(mem)/rowBytes*rowBytes], rowBytes)}
		if _, err := cache.New(o); err == nil || !strings.Contains(err.Error(), "table c: transfer: adopted memory (") || !strings.Contains(err.Error(), "must not overlap") {
			t.Errorf("memory adopted twice: %v", err)
		}
		if err := c.Close(); err != nil || !bytes.Equal(a, first) || !bytes.Equal(b, second) {
			t.Errorf("%v, or the rows are not restored", err)
		}
	})
}

// TestAdopt_NewFails: after New has failed, at the first table or after all, the rows are as they were.
func TestAdopt_NewFails(t *testing.T) {
	onBackends(t, func(t *testing.T, backend cache.Backend) {
		const rowBytes = 512
		data := gputest.FloatRows(dtype.Float32, 1000, rowBytes, 1)
		mem := mapped(t, data)
		other, err := cache.FromBytes("y", dtype.Float32, make([]byte, 4<<10), 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, want string
			change     func(o *cache.Options)
		}{
			{"budget", "budget too small", func(o *cache.Options) { o.Budget = 100 }},
			{"training", "training batch 0", func(o *cache.Options) {
				o.Admission.Training = func(yield func(int, []int64) bool) { yield(0, []int64{5000}) }
			}},
			{"next table", "must not be given to New twice", func(o *cache.Options) { o.Tables = append(o.Tables, o.Tables[0]) }},
			{"packed", "layout of adopted memory (packed) must be inplace; FromBytes copies", func(o *cache.Options) { o.Host.Tier = cache.Packed }},
			{"capacity", "capacity of adopted memory (2000 rows) must be its 1000 rows; FromBytes copies", func(o *cache.Options) { o.Tables[0] = o.Tables[0].WithCapacity(2000) }},
			{"lossy", "codec of adopted memory (sleek-eb:0.1) must be lossless; FromBytes copies", func(o *cache.Options) { o.Codec = "sleek-eb:0.1" }},
		} {
			o := cache.Options{Tables: []cache.Table{adopt(t, "x", mem, rowBytes), other}, Budget: 100_000, Codec: "ibp4", Devices: cache.DeviceOptions{Backend: backend}}
			o.Tables = o.Tables[:1]
			c.change(&o)
			made, err := cache.New(o)
			if err == nil {
				made.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
			if !bytes.Equal(mem, data) {
				t.Fatalf("%s: rows have changed", c.name)
			}
		}
	})
}

// TestAdopt_Refused: each refusal says what the memory is and names the form that copies.
func TestAdopt_Refused(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "rows")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	page := os.Getpagesize()
	if err := file.Truncate(int64(4 * page)); err != nil {
		t.Fatal(err)
	}
	disk, err := unix.Mmap(int(file.Fd()), 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(disk)
	fixed, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(fixed)
	mem := mapped(t, make([]byte, 4*page))
	heap := make([]byte, 8*page)
	heap = heap[-addressOf(heap)&uintptr(page-1):][:4*page]
	for _, c := range []struct {
		mem      []byte
		rowBytes int
		want     string
	}{
		{disk, 64, "must not be of a file; FromBytes copies it instead"},
		{fixed, 64, "must be readable and writable; FromBytes copies it instead"},
		{heap, 64, "must not be of the Go heap; FromBytes copies it instead"},
		{mem[64:], 64, "transfer: adopted memory (64 bytes behind the start of a page) must begin at a page of"},
		{mem[:66*4], 66, "transfer: row of adopted memory (66 bytes) must be a multiple of 4 bytes; FromBytes copies it instead"},
		{mem[:65], 64, "cache: table x: data (65 bytes) must be a multiple of the row (64 bytes)"},
		{nil, 64, "memory (0 bytes) must not be empty"},
	} {
		_, err := cache.Adopt("x", dtype.Uint8, c.mem, c.rowBytes)
		if err == nil || !strings.HasPrefix(err.Error(), "cache: table x: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	table, err := cache.Adopt("x", dtype.Uint8, mem, 64)
	if err != nil {
		t.Fatal(err)
	}
	cache.OpenHostWith(t, func(n, workers int) []device.Device { return []device.Device{plainDevice{host.Open(1, 1)[0]}} })
	if _, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 10_000, Devices: cache.DeviceOptions{Backend: "host"}}); err == nil || !strings.Contains(err.Error(), "cannot adopt") {
		t.Error(err)
	}
}

// plainDevice is a device of a backend that has only what it must have.
type plainDevice struct{ device.Device }

// TestAdopt_NoSecondCopy: opening a cache over adopted memory takes a small part of the table's memory more.
func TestAdopt_NoSecondCopy(t *testing.T) {
	race.SkipSequential(t)
	onBackends(t, func(t *testing.T, backend cache.Backend) {
		const rowBytes, rows = 512, 1 << 18 // 128 MiB
		one := gputest.FloatRows(dtype.Float32, 1<<10, rowBytes, 1)
		mem := mapped(t, bytes.Repeat(one, rows>>10))
		sample := func() int64 {
			debug.FreeOSMemory() // garbage of the test would hide what New takes
			return resident(t)
		}
		// The driver and its kernels stay in memory after the first cache.
		if err := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "w", one, rowBytes)}, Budget: 1 << 20, Codec: "ibp4", Devices: cache.DeviceOptions{Backend: backend},
		}).Close(); err != nil {
			t.Fatal(err)
		}
		before, mappings := sample(), mappings(t)
		c := newCache(t, cache.Options{
			Tables: []cache.Table{adopt(t, "x", mem, rowBytes)}, Budget: 2 << 20, Codec: "ibp4", Devices: cache.DeviceOptions{Backend: backend},
			Admission: cache.AdmissionOptions{Cold: true},
		})
		most := int64(len(mem) / 2)
		if backend == cache.BackendCUDA {
			most += 16 << 20 // the emulated GPU's pieces are host memory
		}
		switch more := sample() - before; {
		case backend == cache.BackendCUDA && !testing.Short():
			t.Logf("%d MiB more for a table of %d, what the driver of a real GPU takes included", more>>20, len(mem)>>20)
			if own := logGrowth(t, mappings, addressOf(mem)); own > most {
				t.Errorf("%d MiB more that are not the driver's for a table of %d", own>>20, len(mem)>>20)
			}
		case more > most:
			t.Errorf("%d MiB more for a table of %d", more>>20, len(mem)>>20)
		}
		ids := []int64{1, 2, rows - 1}
		out := make([]byte, len(ids)*rowBytes)
		if err := errors.Join(c.Gather(ctx, cache.Request{Rows: ids, Out: out})); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(out[2*rowBytes:], one[1023*rowBytes:]) {
			t.Error("wrong rows")
		}
	})
}

// mapping is a range of the process's memory and how much of it is resident. Pss divides pages by the number of processes that have them.
type mapping struct {
	start    uint64
	name     string
	rss, pss int64
}

// mappings returns the process's mappings.
func mappings(t *testing.T) (all []mapping) {
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		var m mapping
		var end uint64
		if _, err := fmt.Sscanf(f[0], "%x-%x", &m.start, &end); err == nil && len(f) >= 5 {
			m.name = strings.Join(f[1:], " ")
			all = append(all, m)
			continue
		}
		kilobytes := int64(0)
		fmt.Sscan(f[1], &kilobytes)
		switch m := &all[len(all)-1]; f[0] {
		case "Rss:":
			m.rss = kilobytes << 10
		case "Pss:":
			m.pss = kilobytes << 10
		}
	}
	return all
}

// logGrowth logs which mappings have become resident since before, the largest first, and returns how many bytes of those that are not of NVIDIA's
// driver. table is where the adopted table begins.
func logGrowth(t *testing.T, before []mapping, table uintptr) (own int64) {
	old := map[uint64]mapping{}
	rss, pss := int64(0), int64(0)
	count := func(m mapping, sign int64) {
		rss, pss = rss+sign*m.rss, pss+sign*m.pss
		if !strings.Contains(m.name, "/dev/nvidia") {
			own += sign * m.rss
		}
	}
	for _, m := range before {
		old[m.start] = m
		count(m, -1)
	}
	now := mappings(t)
	for i, m := range now {
		count(m, 1)
		now[i].rss, now[i].pss = m.rss-old[m.start].rss, m.pss-old[m.start].pss
	}
	t.Logf("all mappings: Rss %+.1f MiB, of which %+.1f MiB are not the driver's, Pss %+.1f MiB; the table begins at %x", float64(rss)/(1<<20), float64(own)/(1<<20),
		float64(pss)/(1<<20), table)
	slices.SortFunc(now, func(a, b mapping) int { return cmp.Compare(b.rss, a.rss) })
	for _, m := range now[:min(12, len(now))] {
		_, had := old[m.start]
		t.Logf("%12x Rss %+7.1f MiB, Pss %+7.1f MiB, new %t, %s", m.start, float64(m.rss)/(1<<20), float64(m.pss)/(1<<20), !had, m.name)
	}
	return own
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// TestAdopt_EqualRows: equal rows of adopted memory share slots, until they are updated.
func TestAdopt_EqualRows(t *testing.T) {
	const rows, rowBytes, contents = 2000, 512, 5
	data := make([]byte, rows*rowBytes)
	for i := range data {
		data[i] = byte(i / rowBytes % contents * (i % rowBytes))
	}
	for _, codec := range []cache.Codec{"none", "ibp4"} {
		c := newCache(t, cache.Options{
			Tables: []cache.Table{adopt(t, "x", mapped(t, data), rowBytes)}, Budget: 70_000, Codec: codec, Devices: cache.DeviceOptions{Backend: cache.BackendHost},
		})
		if of := stats(t, c).Tables[0]; of.CachedRows != rows || of.EqualRows < rows-1 || of.SlotsSaved < rows-contents-1 || of.EqualBytes == 0 { // the last row is raw
			t.Errorf("%s: %d rows cached, %d of them equal, %d slots saved", codec, of.CachedRows, of.EqualRows, of.SlotsSaved)
		}
		want, ids, out := bytes.Clone(data), make([]int64, rows), make([]byte, len(data))
		for i := range ids {
			ids[i] = int64(i)
		}
		for row := 0; row < 50; row += 7 {
			of := want[row*rowBytes:][:rowBytes]
			for i := range of {
				of[i] += byte(row + 1)
			}
			if err := c.Update(ctx, 0, []int64{int64(row)}, of); err != nil {
				t.Fatal(err)
			}
			if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil || !bytes.Equal(out, want) {
				t.Fatalf("%s: rows differ after row %d was updated, %v", codec, row, err)
			}
		}
		c.Close()
	}
}

// TestAdopt_Shared: adopted memory cannot be shared, and the error says what can.
func TestAdopt_Shared(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	table, err := cache.Adopt("x", dtype.Uint8, mem, 64)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 4096, Shared: true})
	const want = "cache: table x: must not be adopted by a cache with Shared, as other processes cannot map the caller's memory: FromBytes or FromSlice copies it to memory that they can"
	if !errors.Is(err, cache.ErrOptions) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestFromBytes_FileShrinks: rows in memory of a mapped file that becomes shorter before or while New copies them are an error, and the process goes on.
func TestFromBytes_FileShrinks(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // so that parts are left when the first progress is told
	const rows, rowBytes = 200_000, 132             // several parts, of rows that are copied to places of another length
	for _, codec := range []cache.Codec{"none", "ibp4"} {
		for name, progress := range map[string]bool{"before": false, "while": true} {
			t.Run(fmt.Sprintf("%s/%s", codec, name), func(t *testing.T) {
				f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if err := f.Truncate(rows * rowBytes); err != nil {
					t.Fatal(err)
				}
				mem, err := unix.Mmap(int(f.Fd()), 0, rows*rowBytes, unix.PROT_READ, unix.MAP_SHARED)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Munmap(mem)
				var once sync.Once
				shrink := func() {
					once.Do(func() {
						if err := f.Truncate(10_000); err != nil {
							t.Error(err)
						}
					})
				}
				o := cache.Options{Budget: 1 << 20, Codec: codec, Devices: cache.DeviceOptions{Backend: cache.BackendHost}}
				if progress {
					o.Host.Progress = func(int, int64, int64) { shrink() }
				} else {
					shrink()
				}
				table, err := cache.FromBytes("x", dtype.Float32, mem, rowBytes)
				if err != nil {
					t.Fatal(err)
				}
				o.Tables = []cache.Table{table}
				c, err := cache.New(o)
				if err == nil {
					c.Close()
				}
				if !errors.Is(err, foreign.ErrFault) || !strings.HasPrefix(err.Error(), "cache: table x: transfer: source at rows from ") {
					t.Errorf("error %v", err)
				}
			})
		}
	}
}
