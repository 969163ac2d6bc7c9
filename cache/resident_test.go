package cache_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// residentRow fills a row: all zeros, like its neighbours, or incompressible.
func residentRow(row []byte, r *rand.Rand) {
	switch r.IntN(3) {
	case 0:
		clear(row)
	case 1:
		for i := range row {
			row[i] = byte(i%4) * 0x11
			if i%7 == 0 {
				row[i] ^= byte(r.Uint32()) & 3
			}
		}
	default:
		for i := range row {
			row[i] = byte(r.Uint32())
		}
	}
}

func openResident(t *testing.T, data []byte, rowBytes int, codec cache.Codec, o cache.ResidentOptions, devices int, more func(*cache.Options)) *cache.Cache {
	t.Helper()
	table, err := cache.FromBytes("features", gputest.DType(rowBytes), data, rowBytes)
	if err != nil {
		t.Fatal(err)
	}
	options := cache.Options{
		Tables: []cache.Table{table.WithCodec(codec).ResidentWith(o)}, Budget: 64 << 20, Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: devices},
	}
	if more != nil {
		more(&options)
	}
	c, err := cache.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A resident table reads as a plain array does under random updates: every codec, rows of 4 to 8,192 bytes, every target from 16 bytes to the row bytes,
// 1 to 8 devices, with overflow places in host memory and on devices.
func TestResident_ReadsAsAnArray(t *testing.T) {
	race.SkipSequential(t)
	r := rand.New(rand.NewPCG(22, 4))
	for _, codec := range append(registry.Concrete(), registry.None) {
		for _, rowBytes := range []int{4, 12, 64, 100, 256, 1028, 8192} {
			most := buddy.MaxTarget(rowBytes)
			target := 16 * (1 + r.IntN(most/16))
			devices := 1 + r.IntN(slab.MaxSlabs)
			rows := 50 + r.IntN(200)
			data := make([]byte, rows*rowBytes)
			for i := range rows {
				residentRow(data[i*rowBytes:][:rowBytes], r)
			}
			if _, err := registry.Train(codec, data, rowBytes, gputest.DType(rowBytes)); err != nil {
				continue // no codec for rows of that length
			}
			t.Run(fmt.Sprintf("%s/%d/target=%d/devices=%d", codec, rowBytes, target, devices), func(t *testing.T) {
				model := bytes.Clone(data)
				o := cache.ResidentOptions{Target: target}
				if rowBytes%8 == 4 && devices > 1 {
					o.Buddy = cache.BuddyPeer
				}
				c := openResident(t, data, rowBytes, cache.Codec(codec), o, devices, func(o *cache.Options) {
					o.Host.Overlay = int64(4 * (rowBytes + 200)) // few places, so that updates wait for epochs
				})
				check := func() {
					t.Helper()
					ids := make([]int64, r.IntN(300))
					for i := range ids {
						ids[i] = int64(r.IntN(rows))
					}
					out := make([]byte, len(ids)*rowBytes)
					if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: out}); err != nil {
						t.Fatal(err)
					}
					for i, id := range ids {
						if !bytes.Equal(out[i*rowBytes:][:rowBytes], model[int(id)*rowBytes:][:rowBytes]) {
							t.Fatalf("row %d: wrong bytes", id)
						}
					}
				}
				check()
				for range 6 {
					n := 1 + r.IntN(rows)
					ids, fresh := make([]int64, n), make([]byte, n*rowBytes)
					for i := range ids {
						ids[i] = int64(r.IntN(rows))
						residentRow(fresh[i*rowBytes:][:rowBytes], r)
						copy(model[int(ids[i])*rowBytes:], fresh[i*rowBytes:][:rowBytes])
					}
					if err := c.Update(context.Background(), 0, ids, fresh); err != nil {
						t.Fatal(err)
					}
					check()
				}
				checkResidentStats(t, c, model, rowBytes)
			})
		}
	}
}

// checkResidentStats compares the statistics with those of a cache that loads the same rows.
func checkResidentStats(t *testing.T, c *cache.Cache, rows []byte, rowBytes int) {
	t.Helper()
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	one := s.Tables[0]
	if one.Misses != 0 || one.Hits != one.Lookups || one.CachedRows != one.Rows {
		t.Errorf("%d hits and %d misses of %d lookups, %d of %d rows cached", one.Hits, one.Misses, one.Lookups, one.CachedRows, one.Rows)
	}
	explained, err := c.Explain(0, allRows(len(rows)/rowBytes))
	if err != nil {
		t.Fatal(err)
	}
	want := cache.ResidentStats{TargetBytes: one.Resident.TargetBytes}
	stored := int64(0)
	for _, e := range explained {
		stored += int64(e.StoredBytes)
		target := want.TargetBytes
		for _, of := range one.Resident.Ranges {
			if uint64(e.Row-of.FirstRow) < uint64(of.Rows) {
				target = of.TargetBytes
			}
		}
		if over := e.StoredBytes - target; over > 0 {
			want.OverflowRows++
			want.OverflowBytes += int64(over)
		}
		if !e.Cached || e.Tier != "resident" && e.Tier != "overlay" {
			t.Fatalf("row %d is explained as %+v", e.Row, e)
		}
	}
	if got := one.Resident; got.OverflowRows != want.OverflowRows || got.OverflowBytes != want.OverflowBytes || one.StoredBytes != stored {
		t.Errorf("%+v, %d stored bytes; the rows say %+v, %d", got, one.StoredBytes, want, stored)
	}
	if s.MetadataBytes+s.PayloadBytes+s.ResidentBytes > s.BudgetBytes || s.ResidentBytes != one.Resident.DeviceBytes+one.Resident.PeerBytes {
		t.Errorf("%d + %d + %d bytes of a budget of %d", s.MetadataBytes, s.PayloadBytes, s.ResidentBytes, s.BudgetBytes)
	}
}

func allRows(n int) []int64 {
	rows := make([]int64, n)
	for i := range rows {
		rows[i] = int64(i)
	}
	return rows
}

// Gathers beside updates see the old or the new version of a row, never a mixture, and after Update the new one.
func TestResident_GathersBesideUpdatesSeeWholeRows(t *testing.T) {
	const rows, rowBytes = 64, 256
	version := func(row []byte, v uint32) { // compresses worse the larger the remainder of the version is
		r := rand.New(rand.NewPCG(uint64(v), 0))
		for i := 0; i < rowBytes; i += 4 {
			word := v
			if i/4%8 < int(v/rows%8) {
				word ^= r.Uint32() << 16
			}
			binary.LittleEndian.PutUint32(row[i:], word)
		}
	}
	data := make([]byte, rows*rowBytes)
	for i := range rows {
		version(data[i*rowBytes:][:rowBytes], uint32(i))
	}
	c := openResident(t, data, rowBytes, "ibp", cache.ResidentOptions{Target: 96}, 3, func(o *cache.Options) { o.Host.Overlay = 8 << 10 })
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for g := range 2 {
		readers.Go(func() {
			ids, out, want := allRows(rows), make([]byte, rows*rowBytes), make([]byte, rowBytes)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := c.On(g).Gather(context.Background(), cache.Request{Rows: ids, Out: out}); err != nil {
					t.Error(err)
					return
				}
				for r := range rows {
					got := out[r*rowBytes:][:rowBytes]
					v := binary.LittleEndian.Uint32(got[rowBytes-4:])
					if version(want, v); !bytes.Equal(got, want) || int(v)%rows != r {
						t.Errorf("row %d is no version of it: %x", r, got)
						return
					}
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(22, 5))
	now := make([]uint32, rows)
	for i := range now {
		now[i] = uint32(i)
	}
	for range gputest.Few(300, 30) {
		n := 1 + r.IntN(rows)
		ids, fresh := make([]int64, n), make([]byte, n*rowBytes)
		for i, row := range r.Perm(rows)[:n] {
			now[row] += uint32(rows * (1 + r.IntN(100)))
			ids[i] = int64(row)
			version(fresh[i*rowBytes:][:rowBytes], now[row])
		}
		if err := c.Update(context.Background(), 0, ids, fresh); err != nil {
			t.Fatal(err)
		}
		out := make([]byte, len(fresh))
		if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out, fresh) {
			t.Fatal("Update has returned, and a Gather does not see its rows")
		}
	}
	close(stop)
	readers.Wait()
}

// A resident table and a cached one share a cache: both are read right, and the cached one has the rest of the budget.
func TestResident_BesideACachedTable(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes = 4000, 128
	data, other := make([]byte, rows*rowBytes), make([]byte, rows*rowBytes)
	r := rand.New(rand.NewPCG(22, 6))
	for i := range rows {
		residentRow(data[i*rowBytes:][:rowBytes], r)
		residentRow(other[i*rowBytes:][:rowBytes], r)
	}
	cached, err := cache.FromBytes("cached", dtype.Float32, other, rowBytes)
	if err != nil {
		t.Fatal(err)
	}
	c := openResident(t, data, rowBytes, "ibp", cache.ResidentOptions{Target: 64}, 2, func(o *cache.Options) {
		o.Tables = append([]cache.Table{cached}, o.Tables...)
		o.Budget = 200 << 10
		o.Refresh = cache.RefreshOptions{Accesses: 1}
	})
	for pass := range 3 {
		for table, want := range [][]byte{other, data} {
			out := make([]byte, len(want))
			if err := c.Gather(context.Background(), cache.Request{Table: table, Rows: allRows(rows), Out: out}); err != nil || !bytes.Equal(out, want) {
				t.Fatalf("pass %d: table %d: wrong rows, %v", pass, table, err)
			}
		}
		if err := c.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.Tables[0].CachedRows == 0 || s.Tables[0].CachedRows == rows || s.Tables[0].Misses == 0 || s.Tables[1].Misses != 0 {
		t.Errorf("the cached table: %+v", s.Tables[0])
	}
	if used := s.MetadataBytes + s.PayloadBytes + s.ResidentBytes; used > s.BudgetBytes || used < s.BudgetBytes*17/20 {
		t.Errorf("%d + %d + %d bytes of a budget of %d", s.MetadataBytes, s.PayloadBytes, s.ResidentBytes, s.BudgetBytes)
	}
	// A budget that holds the resident table only: the cached rows give way.
	if err := c.SetBudget(context.Background(), (s.ResidentBytes+s.MetadataBytes)/2+10<<10); err != nil {
		t.Fatal(err)
	}
	if err := c.SetBudget(context.Background(), s.ResidentBytes/2); !errors.Is(err, cache.ErrBudget) {
		t.Errorf("a budget without room for a cached row: %v", err)
	}
}

// Rows that Update appends up to the capacity are read. A gap is an error, and changes nothing.
func TestResident_Grows(t *testing.T) {
	const rowBytes = 64
	c := openResident(t, bytes.Repeat([]byte{1, 2, 3, 4}, 10*rowBytes/4), rowBytes, "ibp", cache.ResidentOptions{Target: 32}, 3, func(o *cache.Options) {
		o.Tables[0] = o.Tables[0].WithCapacity(100)
	})
	row := bytes.Repeat([]byte{9, 9, 9, 9}, rowBytes/4)
	want := bytes.Repeat([]byte{1, 2, 3, 4}, 10*rowBytes/4)
	err := c.Update(context.Background(), 0, []int64{3, 11}, append(bytes.Clone(row), row...))
	if text := "cache: row numbers out of range: row number (11) must be at most 10, the row after the last one of table features: rows are appended without a gap"; err == nil || err.Error() != text {
		t.Errorf("a gap: %v", err)
	}
	checkModel(t, c, want, rowBytes)
	want = append(want, bytes.Repeat(row, 31)...)
	if err := c.Update(context.Background(), 0, allRows(41)[10:], want[10*rowBytes:]); err != nil {
		t.Fatal(err)
	}
	checkModel(t, c, want, rowBytes)
	checkResidentStats(t, c, want, rowBytes)
	if err := c.Gather(context.Background(), cache.Request{Rows: []int64{41}, Out: make([]byte, rowBytes)}); !errors.Is(err, cache.ErrRows) {
		t.Errorf("a row behind the end: %v", err)
	}
	if err := c.Update(context.Background(), 0, []int64{100}, row); !errors.Is(err, cache.ErrRows) {
		t.Errorf("a row behind the capacity: %v", err)
	}
}

// A table that begins without rows gets slots for raw rows.
func TestResident_BeginsEmpty(t *testing.T) {
	const rowBytes = 64
	c := openResident(t, nil, rowBytes, "ibp", cache.ResidentOptions{}, 2, func(o *cache.Options) { o.Tables[0] = o.Tables[0].WithCapacity(50) })
	row := bytes.Repeat([]byte{3, 1, 4, 1}, rowBytes/4)
	if err := c.Update(ctx, 0, []int64{2, 0, 1}, bytes.Repeat(row, 3)); err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 3*rowBytes)
	if err := c.Gather(ctx, cache.Request{Rows: allRows(3), Out: out}); err != nil || !bytes.Equal(out, bytes.Repeat(row, 3)) {
		t.Fatalf("wrong rows: %v", err)
	}
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Tables[0].Resident; r.TargetBytes != rowBytes || r.OverflowRows != 0 || r.BuddyBytes != 0 {
		t.Errorf("%+v", r)
	}
}

// Policies have no part in a resident table, whichever they are: they are neither asked for rows nor about them.
func TestResident_WithEveryPolicy(t *testing.T) {
	const rows, rowBytes = 200, 64
	data := make([]byte, rows*rowBytes)
	for _, name := range admission.Names() {
		spec, err := admission.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		policy, err := spec.New(admission.Inputs{Graphs: []admission.Graph{{Indptr: make([]int64, rows+1)}}})
		if err != nil {
			t.Fatal(err)
		}
		c := openResident(t, data, rowBytes, "ibp", cache.ResidentOptions{Target: 32}, 1, func(o *cache.Options) {
			o.Admission.Policy, o.Refresh.Accesses = policy, 1
		})
		if err := c.Gather(ctx, cache.Request{Rows: allRows(rows), Out: make([]byte, len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Explain(0, []int64{0, rows - 1}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Refresh(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s, err := c.Stats(); err != nil || s.PolicyError != "" || s.RefreshError != "" {
			t.Errorf("%s: %v, %q, %q", name, err, s.PolicyError, s.RefreshError)
		}
	}
}

// Pooled Gathers and Gathers to another type read resident tables as they read cached ones.
func TestResident_Pooled(t *testing.T) {
	const rows, columns = 300, 24
	data := make([]byte, rows*columns*4)
	r := rand.New(rand.NewPCG(22, 7))
	for i := range rows * columns {
		binary.LittleEndian.PutUint32(data[4*i:], 0x3f800000|r.Uint32()>>uint(9+r.IntN(20)))
	}
	resident := openResident(t, data, 4*columns, "ibp", cache.ResidentOptions{Target: 48}, 2, nil)
	table, err := cache.FromBytes("features", dtype.Float32, data, 4*columns)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := cache.New(cache.Options{Tables: []cache.Table{table.WithCodec("ibp")}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	ids := make([]int64, 1500)
	for i := range ids {
		ids[i] = r.Int64N(rows)
	}
	var sums [2][]byte
	for i, c := range []*cache.Cache{plain, resident} {
		sums[i] = make([]byte, 4*columns*(len(ids)/30))
		if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: sums[i], Pool: &cache.Pooling{Bag: 30, Mode: cache.PoolMean}}); err != nil {
			t.Fatal(err)
		}
		as := make([]byte, 2*columns*len(ids))
		if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: as, As: dtype.BFloat16}); err != nil {
			t.Fatal(err)
		}
		sums[i] = append(sums[i], as...)
	}
	if !bytes.Equal(sums[0], sums[1]) {
		t.Error("sums differ")
	}
}

// What cannot be resident is an error that names the least budget that would do.
func TestResident_RefusesWhatCannotBe(t *testing.T) {
	const rows, rowBytes = 1000, 128
	data := make([]byte, rows*rowBytes)
	r := rand.New(rand.NewPCG(22, 8))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	open := func(o cache.ResidentOptions, budget int64, more func(*cache.Table, *cache.Options)) error {
		table, err := cache.FromBytes("features", dtype.Float32, data, rowBytes)
		if err != nil {
			t.Fatal(err)
		}
		options := cache.Options{Budget: budget, Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: 1}, Codec: "ibp"}
		table = table.ResidentWith(o)
		if more != nil {
			more(&table, &options)
		}
		options.Tables = []cache.Table{table}
		c, err := cache.New(options)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	var least int64
	err := open(cache.ResidentOptions{}, 100_000, nil)
	if _, after, ok := strings.Cut(fmt.Sprint(err), "must be at least "); !errors.Is(err, cache.ErrBudget) || !ok {
		t.Fatalf("rows that do not shrink, in too small a budget: %v", err)
	} else if _, err := fmt.Sscan(after, &least); err != nil || least < rows*(rowBytes+8) || least > rows*(rowBytes+8)+1000 {
		t.Errorf("the least budget is %d: %v", least, err)
	}
	if err := open(cache.ResidentOptions{}, least, nil); err != nil {
		t.Errorf("the least budget: %v", err)
	}
	if err := open(cache.ResidentOptions{}, least-1, nil); !errors.Is(err, cache.ErrBudget) {
		t.Errorf("one byte less: %v", err)
	}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"target that does not fit": {open(cache.ResidentOptions{Target: 128}, 100_000, nil), "resident with slots of 128 B, takes 136128 B of each device: GPUMemory (100000 B) must be at least"},
		"target":                   {open(cache.ResidentOptions{Target: 20}, 1<<20, nil), "target (20 B) must be a multiple of 16"},
		"negative target":          {open(cache.ResidentOptions{Target: -16}, 1<<20, nil), "target (-16 B)"},
		"share":                    {open(cache.ResidentOptions{MaxOverflow: 1.5}, 1<<20, nil), "MaxOverflow (1.5) must be 0 to 1"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if err := open(cache.ResidentOptions{Target: 4096}, 1<<20, nil); err != nil {
		t.Errorf("a target above the row bytes: %v", err)
	}
}

// A resident table has the metrics that docs/tracing.md lists for it, and they say what the statistics say.
func TestDocs_MetricsOfResidentTables(t *testing.T) {
	b, err := os.ReadFile("../docs/tracing.md")
	if err != nil {
		t.Skip("needs the repository: a test binary runs alone here")
	}
	_, section, _ := strings.Cut(string(b), "\n## Metrics of resident tables\n")
	section, _, _ = strings.Cut(section, "\n## ")
	const rows, rowBytes = 100, 64
	data := make([]byte, rows*rowBytes)
	for i := range data {
		data[i] = byte(i * i)
	}
	recorder := newRecorder(t, sdktrace.NeverSample())
	c := openResident(t, data, rowBytes, "none", cache.ResidentOptions{Target: 32, MaxTarget: 48, MaxOverflow: 0.5}, 2, func(o *cache.Options) { o.Telemetry = recorder.options() })
	if err := c.Gather(ctx, cache.Request{Rows: allRows(30), Out: make([]byte, 30*rowBytes)}); err != nil {
		t.Fatal(err)
	}
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	got, want := recorder.collect(t), map[string]int64{
		"target": 32, "target.limit": 48, "usage": s.Tables[0].Resident.DeviceBytes, "peer.usage": s.Tables[0].Resident.PeerBytes, "overflow.rows": rows,
		"overflow.exceeded": 1, "overflow.reads": 30, "overflow.bytes": 30 * 32,
	}
	for name, value := range want {
		if n, ok := got["tensorcache.resident."+name+"{tensorcache.table.name=features}"]; !ok || n != float64(value) {
			t.Errorf("%s is %v, want %d", name, n, value)
		}
		if !strings.Contains(section, "`tensorcache.resident."+name+"`") {
			t.Errorf("%s is not documented", name)
		}
	}
	// A table of several ranges has two for each of them; one of a single range has none.
	ranges := []string{"tensorcache.resident.range.target", "tensorcache.resident.range.rows"}
	if n := strings.Count(section, "\n| `"); n != len(want)+len(ranges) {
		t.Errorf("%d metrics are documented, %d known", n, len(want)+len(ranges))
	}
	for name := range got {
		if strings.Contains(name, "resident.range") {
			t.Errorf("%s of a table of one range", name)
		}
	}
	recorder = newRecorder(t, sdktrace.NeverSample())
	c = openResident(t, classesOfRows(rand.New(rand.NewPCG(22, 80)), 260, rowBytes, 0, 1), rowBytes, "zipnn", cache.ResidentOptions{}, 2, func(o *cache.Options) { o.Telemetry = recorder.options() })
	several := stats(t, c).Tables[0].Resident.Ranges
	if got = recorder.collect(t); len(several) < 2 {
		t.Fatalf("ranges: %+v", several)
	}
	for i, name := range ranges {
		for _, r := range several {
			at := fmt.Sprintf("%s{tensorcache.row=%d,tensorcache.table.name=features}", name, r.FirstRow)
			if want := []float64{float64(r.TargetBytes), float64(r.Rows)}[i]; got[at] != want {
				t.Errorf("%s is %v, want %v", at, got[at], want)
			}
		}
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("%s is not documented", name)
		}
	}
}

// When a device is lost, batches of a resident table fail with its error, because its rows there have no other copy. Cached tables are served
// on, and neither Update nor Close waits for ever.
func TestResident_LosesItsRowsWithADevice(t *testing.T) {
	const rows, rowBytes = 300, 64
	for _, in := range []cache.BuddyMemory{cache.BuddyHost, cache.BuddyPeer} {
		t.Run(string(in), func(t *testing.T) {
			f := openFaulty(t, nil)
			data := make([]byte, rows*rowBytes)
			for i := range data {
				data[i] = byte(i * i >> 3)
			}
			c := openResident(t, data, rowBytes, "none", cache.ResidentOptions{Target: 32, Buddy: in}, 3, func(o *cache.Options) {
				o.Tables = append(o.Tables, fromBytes(t, "cached", data, rowBytes))
				o.Budget = 20_000
			})
			out := make([]byte, len(data))
			for table := range 2 {
				if err := c.Gather(ctx, cache.Request{Table: table, Rows: allRows(rows), Out: out}); err != nil || !bytes.Equal(out, data) {
					t.Fatalf("table %d: %v", table, err)
				}
			}
			f.lose(1)
			if err := c.Gather(ctx, cache.Request{Table: 1, Rows: allRows(rows), Out: out}); err != nil || !bytes.Equal(out, data) {
				t.Errorf("the cached table: %v", err)
			}
			if err := c.Gather(ctx, cache.Request{Rows: []int64{0}, Out: out[:rowBytes]}); !errors.Is(err, cache.ErrDevice) {
				t.Errorf("the resident table: %v", err)
			}
			if err := c.Update(ctx, 0, allRows(rows), data); err != nil {
				t.Errorf("an update: %v", err)
			}
		})
	}
}

// Devices that do not read each other's memory cannot share a resident table.
func TestResident_NeedsDevicesThatReadEachOther(t *testing.T) {
	openFaulty(t, []int{0, 0, 1})
	_, err := cache.New(cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", make([]byte, 6400), 64).Resident()}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: 3},
	})
	if want := "cache: table x: devices of a resident table (3) must all read each other's memory: their sets are [[0 1] [2]]"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// What a caller does with the arguments of an Update that has returned changes no rows: C callers free them.
func TestResident_UpdateKeepsNoArguments(t *testing.T) {
	const rows, rowBytes = 600, 64
	r := rand.New(rand.NewPCG(22, 9))
	now := make([]byte, rows*rowBytes)
	for i := range rows {
		residentRow(now[i*rowBytes:][:rowBytes], r)
	}
	c := openResident(t, bytes.Clone(now), rowBytes, "ibp4", cache.ResidentOptions{Target: 16, MaxOverflow: 1}, 2, nil)
	ids, fresh, out := make([]int64, 200), make([]byte, 200*rowBytes), make([]byte, len(now))
	for range 20 {
		first := r.IntN(rows - len(ids))
		for i := range ids { // ascending: such rows need not be put in order
			ids[i] = int64(first + i)
			residentRow(fresh[i*rowBytes:][:rowBytes], r)
		}
		copy(now[first*rowBytes:], fresh)
		if err := c.Update(context.Background(), 0, ids, fresh); err != nil {
			t.Fatal(err)
		}
		for i := range ids {
			ids[i] = -1 << 62
		}
		clear(fresh)
		if err := c.Gather(context.Background(), cache.Request{Rows: allRows(rows), Out: out}); err != nil || !bytes.Equal(out, now) {
			t.Fatalf("rows are not as updated, %v", err)
		}
	}
	checkResidentStats(t, c, now, rowBytes)
}

// The smallest overlay holds a row of a table without a codec, whose length is a whole number of lines.
func TestResident_OverlayOfOneRow(t *testing.T) {
	const rows, rowBytes = 20, 128
	r := rand.New(rand.NewPCG(22, 10))
	now := residentRows(rows, rowBytes, r)
	c := openResident(t, bytes.Clone(now), rowBytes, "none", cache.ResidentOptions{Target: 16, MaxTarget: rowBytes}, 2, func(o *cache.Options) { o.Host.Overlay = 1 })
	some, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := range rows / 2 {
		residentRow(now[i*rowBytes:][:rowBytes], r)
	}
	if err := c.Update(some, 0, allRows(rows/2), now[:rows/2*rowBytes]); err != nil {
		t.Fatal(err)
	}
	if err := c.Retarget(some, 0, rowBytes); err != nil {
		t.Fatal(err)
	}
	checkModel(t, c, now, rowBytes)
}

// Updates of many batches, each of several parts, by two callers beside readers: readers see whole versions, and in the end every row is the newest one.
func TestResident_UpdatesOfManyBatches(t *testing.T) {
	const rowBytes = 32
	rows := gputest.Few(60_000, 12_000)
	version := func(row []byte, r int, v uint32) { // every second version is stored raw
		noise := rand.New(rand.NewPCG(uint64(r), uint64(v)))
		for i := 0; i < rowBytes; i += 4 {
			binary.LittleEndian.PutUint32(row[i:], v*uint32(i)*(v%2)*noise.Uint32())
		}
		binary.LittleEndian.PutUint32(row, v<<16^uint32(r))
		binary.LittleEndian.PutUint32(row[rowBytes-4:], v)
	}
	now := make([]byte, rows*rowBytes)
	for i := range rows {
		version(now[i*rowBytes:][:rowBytes], i, 0)
	}
	c := openResident(t, now, rowBytes, "ibp4", cache.ResidentOptions{Target: 16, MaxOverflow: 1}, 3, func(o *cache.Options) { o.Host.Overlay = 6 << 20 })
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for g := range 2 {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(22, uint64(g)))
			ids, want := make([]int64, 500), make([]byte, rowBytes)
			out := make([]byte, len(ids)*rowBytes)
			for {
				select {
				case <-stop:
					return
				default:
				}
				for i := range ids {
					ids[i] = int64(r.IntN(rows))
				}
				if err := c.On(g).Gather(context.Background(), cache.Request{Rows: ids, Out: out}); err != nil {
					t.Error(err)
					return
				}
				for i, id := range ids {
					got := out[i*rowBytes:][:rowBytes]
					if version(want, int(id), binary.LittleEndian.Uint32(got[rowBytes-4:])); !bytes.Equal(got, want) {
						t.Errorf("row %d is no version of it: %x", id, got)
						return
					}
				}
			}
		})
		writers.Go(func() { // each updates rows of its own
			r := rand.New(rand.NewPCG(23, uint64(g)))
			for v := range uint32(gputest.Few(12, 5)) {
				ids := make([]int64, r.IntN(rows))
				fresh := make([]byte, len(ids)*rowBytes)
				for i := range ids { // some are given twice: the later one counts
					row := r.IntN(rows/2)*2 + g
					ids[i] = int64(row)
					version(fresh[i*rowBytes:][:rowBytes], row, v*1000+uint32(r.IntN(1000)))
					copy(now[row*rowBytes:], fresh[i*rowBytes:][:rowBytes])
				}
				if err := c.Update(context.Background(), 0, ids, fresh); err != nil {
					t.Error(err)
				}
				for range 3 { // while the rows move from the overlay to their places
					if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: fresh}); err != nil {
						t.Error(err)
					}
					for i, id := range ids {
						if got := fresh[i*rowBytes:][:rowBytes]; !bytes.Equal(got, now[int(id)*rowBytes:][:rowBytes]) {
							t.Errorf("row %d is an older version after Update: %x", id, got)
							return
						}
					}
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	out := make([]byte, len(now))
	if err := c.Gather(context.Background(), cache.Request{Rows: allRows(rows), Out: out}); err != nil || !bytes.Equal(out, now) {
		t.Errorf("rows are not the newest ones, %v", err)
	}
	checkResidentStats(t, c, now, rowBytes)
}
