package cache_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// model is a table whose rows have versions: versioned writes version v of row r. It records when each version was current.
type model struct {
	rows     int64 // of the source; version 0 of the others is zeros
	rowBytes int
	equal    bool           // most versions of most rows are one of a few contents
	classes  bool           // the first half of the rows shrinks well, the others not at all
	begun    []atomic.Int64 // the version that the last Update of the row brings
	done     []atomic.Int64 // the version of the last Update of the row that has returned
	writing  []sync.Mutex   // one Update of a row at a time

	failing atomic.Bool  // pages cannot be read now and then: rows may be zeros if Gather says so
	zeroed  atomic.Int64 // rows that were
}

func newModel(rows, capacity, rowBytes int) *model {
	return &model{rows: int64(rows), rowBytes: rowBytes, begun: make([]atomic.Int64, capacity), done: make([]atomic.Int64, capacity), writing: make([]sync.Mutex, capacity)}
}

// versioned writes version v of a row: row number and version, then bytes derived from them. Some versions compress well, some not at all.
func versioned(dst []byte, row, v int64) {
	clear(dst)
	binary.LittleEndian.PutUint64(dst, uint64(row)<<32|uint64(v))
	state := hashmap.Hash(uint64(row)*0x9e3779b97f4a7c15 + uint64(v) + 1)
	noise := len(dst)
	switch state % 4 {
	case 0:
		noise = 8
	case 1, 2:
		noise = 8 + int(state>>8)%(len(dst)-8)
	}
	for i := 8; i < noise; i++ {
		state = state*6364136223846793005 + 1442695040888963407
		dst[i] = byte(state >> 56)
	}
}

// version writes version v of a row of the model's table.
func (m *model) version(dst []byte, row, v int64) {
	if h := hashmap.Hash(uint64(row)<<20 ^ uint64(v)); m.equal && h%4 != 0 {
		versioned(dst, int64(h>>8%5), 1<<30)
		return
	}
	versioned(dst, row, v)
	if m.classes && row < m.rows/2 {
		clear(dst[8:])
	} else if m.classes {
		for i, state := 8, hashmap.Hash(uint64(row)<<20|uint64(v)); i < len(dst); i++ {
			state = state*6364136223846793005 + 1442695040888963407
			dst[i] = byte(state >> 56)
		}
	}
}

// source returns version 0 of the rows that the table begins with.
func (m *model) source() []byte {
	b := make([]byte, int(m.rows)*m.rowBytes)
	for r := range int(m.rows) {
		m.version(b[r*m.rowBytes:][:m.rowBytes], int64(r), 0)
	}
	return b
}

// update updates rows through the cache. Rows are locked in the order of their numbers.
func (m *model) update(c *cache.Cache, table int, rows []int64) error {
	data := make([]byte, len(rows)*m.rowBytes)
	for i, r := range rows {
		m.writing[r].Lock()
		defer m.writing[r].Unlock()
		v := m.begun[r].Add(1)
		m.version(data[i*m.rowBytes:][:m.rowBytes], r, v)
	}
	if err := c.Update(ctx, table, rows, data); err != nil {
		return err
	}
	for _, r := range rows {
		m.done[r].Store(m.begun[r].Load())
	}
	return nil
}

// gather reads rows through the cache. It returns an error unless each is a version that was current at some moment between the begin and
// the end of the call.
func (m *model) gather(gather func(rows []int64, out []byte) error, rows []int64) error {
	before := make([]int64, len(rows))
	for i, r := range rows {
		before[i] = m.done[r].Load()
	}
	out := make([]byte, len(rows)*m.rowBytes)
	err := gather(rows, out)
	if err != nil && !(m.failing.Load() && errors.Is(err, cache.ErrCold)) {
		return err
	}
	want, zeroed := make([]byte, m.rowBytes), 0
	for i, r := range rows {
		got := out[i*m.rowBytes:][:m.rowBytes]
		if err != nil && bytes.Equal(got, make([]byte, m.rowBytes)) {
			zeroed++
			continue
		}
		if m.equal {
			if !m.isVersion(got, r, before[i], m.begun[r].Load()) {
				return fmt.Errorf("row %d is no version of it from %d on: %x", r, before[i], got)
			}
			continue
		}
		head := binary.LittleEndian.Uint64(got)
		v := int64(head & (1<<32 - 1))
		if after := m.begun[r].Load(); int64(head>>32) != r || v < before[i] || v > after {
			return fmt.Errorf("row %d reads as version %d of row %d, want version %d to %d", r, v, head>>32, before[i], after)
		}
		if m.version(want, r, v); r >= m.rows && v == 0 {
			return fmt.Errorf("row %d reads as one that nobody has written", r)
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("row %d is no version of it: %x, want %x", r, got, want)
		}
	}
	if err != nil && zeroed == 0 {
		return fmt.Errorf("no row is zeroed: %w", err)
	}
	m.zeroed.Add(int64(zeroed))
	return nil
}

// isVersion says whether a row is one of its versions from one number to another.
func (m *model) isVersion(got []byte, row, from, to int64) bool {
	want := make([]byte, m.rowBytes)
	for v := from; v <= to; v++ {
		if row >= m.rows && v == 0 { // nobody has written it
			continue
		}
		m.version(want, row, v)
		if bytes.Equal(got, want) {
			return true
		}
	}
	return false
}

// page is the reading of a page, which is slow or fails now and then.
func (m *model) page(ctx context.Context, page uint32) error {
	if m.failing.Load() && rand.IntN(8) == 0 {
		return fmt.Errorf("page %d is not there just now", page)
	}
	return slowPages(ctx, page)
}

// randomPolicy ranks rows at random, some of them not at all.
type randomPolicy struct {
	rows []int64
	r    *rand.Rand
}

func (p *randomPolicy) Name() string { return "random" }
func (p *randomPolicy) Start(problem admission.Problem) error {
	p.rows, p.r = problem.Rows, rand.New(rand.NewPCG(7, 7))
	return nil
}
func (p *randomPolicy) Observe(int, []int64) {}

// Explain reports that the first rows of each table are the most frequent.
func (p *randomPolicy) Explain(key uint64) admission.Estimate {
	_, row := hashmap.SplitKey(key)
	return admission.Estimate{Frequency: 1000 / float64(1+row)}
}
func (p *randomPolicy) Rank() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for t, n := range p.rows {
			for _, r := range p.r.Perm(int(n))[:n/2] {
				if !yield(hashmap.Key(t, int64(r))) {
					return
				}
			}
		}
	}
}
func (p *randomPolicy) Resize(int64) {}
func (p *randomPolicy) Close()       {}

// runModel runs all operations of a cache from several goroutines and checks the rows. Devices of f, if any, are lost meanwhile.
func runModel(t *testing.T, operations int64, m modelCase, devices int, f *faulty) {
	o, lose, failing, equal, resident := m.o, m.lose, m.failing, m.equal, m.resident
	const rows, rowBytes = 600, 120
	capacity, paged := 700, o.Host.Memory > 0 // tables of pages do not grow
	if paged {
		capacity = rows
	}
	models := []*model{newModel(rows, capacity, rowBytes), newModel(rows, capacity, rowBytes)}
	for i, m := range models {
		m.equal, m.classes = equal, resident != nil && i == 0 && resident.Target == 0
		table, err := cache.FromBytes(fmt.Sprint("table", i), dtype.Uint8, m.source(), rowBytes)
		if paged {
			o.Codec, o.Host.Overlay = "", 1<<20
			table, err = cache.FromPages(packed(t, m.source(), rowBytes, []string{"ibp4", "none"}[i], m.page))
			if i == 0 {
				table = table.WithLog(t.TempDir(), false)
			}
		} else {
			table = table.WithCapacity(int64(capacity))
		}
		if resident != nil && i == 0 { // beside a cached one
			table = table.ResidentWith(*resident)
		}
		if err != nil {
			t.Fatal(err)
		}
		o.Tables = append(o.Tables, table)
	}
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	o.Admission.Policy, o.Devices.Count = &randomPolicy{}, devices
	var lost atomic.Int64 // how many of lose are
	mayFail := func(device int) bool {
		at := slices.Index(lose, device)
		return at >= 0 && int64(at) < lost.Load()
	}
	if len(o.Budgets) > 0 {
		o.Budget = slices.Max(o.Budgets)
	}
	o.Refresh = cache.RefreshOptions{Interval: 2 * time.Millisecond, MaxChurn: 0.3}
	c := newCache(t, o)
	for _, m := range models {
		m.failing.Store(failing)
	}
	var left, updates, inserted, retargets atomic.Int64
	left.Store(operations)
	background, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	fail := func(what string, err error) bool {
		if err != nil {
			t.Errorf("%s: %v", what, err)
			left.Store(0)
		}
		return err == nil
	}
	for g := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			pick := func(m *model, n, most int64) []int64 {
				ids := make([]int64, 0, n)
				for range n {
					ids = append(ids, r.Int64N(most))
				}
				return ids
			}
			for {
				now := left.Add(-1)
				if now < 0 {
					break
				}
				if n := lost.Load(); g == 0 && int(n) < len(lose) && now < operations*(int64(len(lose))-n)/int64(len(lose)+1) {
					lost.Add(1)
					f.lose(lose[n])
				}
				table := r.IntN(2)
				m := models[table]
				switch x := r.IntN(1000); {
				case x < 900:
					ids := pick(m, r.Int64N(24), c.Rows(table))
					device := r.IntN(devices + 1)
					err := m.gather(func(rows []int64, out []byte) error {
						if device == devices {
							return c.Gather(ctx, cache.Request{Table: table, Rows: rows, Out: out})
						}
						return c.On(device).Gather(ctx, cache.Request{Table: table, Rows: rows, Out: out})
					}, ids)
					if errors.Is(err, cache.ErrDevice) && mayFail(device) {
						continue
					}
					if !fail("Gather", err) {
						return
					}
				case x < 960:
					seen := map[int64]bool{}
					var ids []int64
					for _, id := range pick(m, 1+r.Int64N(6), rows) {
						if !seen[id] && (len(ids) == 0 || id > ids[len(ids)-1]) {
							seen[id] = true
							ids = append(ids, id)
						}
					}
					if r.IntN(10) == 0 { // append rows: others may have been quicker
						for next := c.Rows(table); next < int64(capacity) && r.IntN(3) != 0; next++ {
							ids = append(ids, next)
						}
					}
					if !fail("Update", m.update(c, table, ids)) {
						return
					}
					updates.Add(1)
					if ids[len(ids)-1] >= rows {
						inserted.Add(1)
					}
				case x < 970 && resident != nil:
					target := 16 * r.IntN(resident.MaxTarget/16+1)
					// Overflow places on devices are taken from a budget that may have shrunk.
					if err := c.Retarget(background, 0, target); !(resident.Buddy == cache.BuddyPeer && errors.Is(err, cache.ErrBudget)) && !fail("Retarget", err) {
						return
					}
					retargets.Add(1)
				case x < 975 && paged:
					if !fail("Prefetch", c.Prefetch(table, pick(m, r.Int64N(40), rows))) {
						return
					}
				case x < 995:
					if !fail("Invalidate", c.Invalidate(table, pick(m, r.Int64N(8), rows))) {
						return
					}
				case x < 998:
					if !fail("Refresh", c.Refresh(background)) {
						return
					}
				case x == 998 && r.IntN(4) == 0:
					if !fail("Snapshot", c.Snapshot(snapshot)) {
						return
					}
				case x < 999:
					if _, err := c.Stats(); !fail("Stats", err) {
						return
					}
				default:
					budget := o.Budget*3/4 + r.Int64N(o.Budget*3/4) // slabs may grow
					if err := c.SetBudget(background, budget); !errors.Is(err, cache.ErrBudget) && !fail("SetBudget", err) {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for i, m := range models {
		m.failing.Store(false)
		all := make([]int64, c.Rows(i))
		for r := range all {
			all[r] = int64(r)
		}
		if err := m.gather(func(rows []int64, out []byte) error {
			return c.Gather(ctx, cache.Request{Table: i, Rows: rows, Out: out})
		}, all); err != nil {
			t.Fatal(err)
		}
	}
	s := stats(t, c)
	if s.ChangeError != "" || s.PolicyError != "" {
		t.Fatalf("errors: %q, %q", s.ChangeError, s.PolicyError)
	}
	n := s.Changes
	t.Logf("%d operations, %d updates (%d insert), %+v, %+v", operations, updates.Load(), inserted.Load(), n, s.Placement)
	for i, d := range s.Devices {
		if d.Lost != mayFail(i) {
			t.Errorf("device %d: %+v", i, d)
		}
		if live := !d.Lost; live && operations > 1000 && (d.LocalHits+d.PeerHits == 0 || d.Lookups != d.LocalHits+d.PeerHits+d.Misses) {
			t.Errorf("device %d: %+v", i, d)
		}
	}
	if updates.Load() > 1000 && (n.Cycles == 0 || n.AdmittedRows == 0 || n.EvictedRows == 0 || (inserted.Load() == 0) != paged || n.InvalidatedRows == 0) {
		t.Fatalf("something never happened: %+v", n)
	}
	if of := s.Tables[0].Resident; resident != nil {
		t.Logf("%d moves: %+v", retargets.Load(), of)
		if operations > 1000 && (retargets.Load() == 0 || of.OverflowReads == 0) {
			t.Fatalf("something never happened: %+v", of)
		}
	}
	if paged {
		tiers := s.Tables[1].Tiers
		t.Logf("%+v", tiers)
		// Cycles and prefetches fail to read rows, too: they do not count. Row 0 may be zeros.
		if failed := models[1].zeroed.Load(); tiers.FailedRows > failed || failing != (tiers.FailedRows > 0) {
			t.Fatalf("%d rows were zeroed: %+v", failed, tiers)
		}
		if operations > 5000 && o.Host.Memory < 100_000 && (tiers.AbsentRows == 0 || tiers.LogRows == 0 || tiers.PrefetchedRows == 0 || tiers.PromotedRows == 0 || tiers.DemotedRows == 0) {
			t.Fatalf("something never happened: %+v", tiers)
		}
	}
	sum := s.Tables[0].Lookups + s.Tables[1].Lookups
	if hits := s.Tables[0].Hits + s.Tables[1].Hits; hits == 0 || hits == sum {
		t.Fatalf("%d hits of %d lookups", hits, sum)
	}
}

// modelCases are the caches to be compared with the model.
var modelCases = map[string]modelCase{
	"in place":           {o: cache.Options{Budget: 60_000, Host: cache.HostOptions{Tier: cache.InPlace}}, devices: 1},
	"packed":             {o: cache.Options{Budget: 60_000, Host: cache.HostOptions{Tier: cache.Packed}}, devices: 1},
	"3 devices":          {o: cache.Options{Budget: 30_000, Host: cache.HostOptions{Tier: cache.Packed}, Codec: "ibp4"}, devices: 3},
	"8 devices":          {o: cache.Options{Budget: 12_000, Host: cache.HostOptions{Tier: cache.InPlace}, Codec: "ibp8"}, devices: 8},
	"overlay of one row": {o: cache.Options{Budget: 60_000, Host: cache.HostOptions{Overlay: 1}, Admission: cache.AdmissionOptions{Cold: true}}, devices: 1},
	"raw rows":           {o: cache.Options{Budget: 60_000, Codec: "none", Host: cache.HostOptions{Tier: cache.Packed}}, devices: 2},
	"copied":             {o: cache.Options{Budget: 60_000, Devices: cache.DeviceOptions{Placement: cache.PlacementReplicate}}, devices: 4, lose: []int{2, 0}},
	"hot rows copied":    {o: cache.Options{Budget: 30_000, Devices: cache.DeviceOptions{Rates: hotRates}, Codec: "ibp4"}, devices: 4, lose: []int{0}},
	"uneven":             {o: cache.Options{Budgets: []int64{40_000, 16_000, 24_000}, Devices: cache.DeviceOptions{Rates: hotRates}, Host: cache.HostOptions{Tier: cache.Packed}}, devices: 3},
	"islands":            {o: cache.Options{Budget: 30_000, Codec: "ibp4"}, devices: 5, islands: []int{0, 0, 1, 2, 1}, lose: []int{1, 3}},
	"8 islands":          {o: cache.Options{Budget: 40_000, Codec: "ibp8"}, devices: 8, islands: []int{0, 1, 2, 3, 4, 5, 6, 7}, lose: []int{0, 4}},
	"8 devices, 7 lost":  {o: cache.Options{Budget: 20_000, Codec: "none", Devices: cache.DeviceOptions{Rates: hotRates}}, devices: 8, lose: []int{3, 0, 1, 7, 6, 2, 5}},
	"equal rows":         {o: cache.Options{Budget: 40_000, Host: cache.HostOptions{Tier: cache.Packed}, Codec: "ibp4"}, devices: 1, equal: true},
	"equal rows, tight":  {o: cache.Options{Budget: 16_000, Host: cache.HostOptions{Tier: cache.Packed}, Codec: "none"}, devices: 1, equal: true},
	"equal, in place":    {o: cache.Options{Budget: 24_000, Host: cache.HostOptions{Tier: cache.InPlace}, Codec: "none"}, devices: 2, lose: []int{1}, equal: true},
	"equal rows copied":  {o: cache.Options{Budget: 24_000, Host: cache.HostOptions{Tier: cache.Packed}, Codec: "ibp4", Devices: cache.DeviceOptions{Placement: cache.PlacementReplicate}}, devices: 4, lose: []int{2, 0}, equal: true},
	"equal rows apart":   {o: cache.Options{Budget: 20_000, Host: cache.HostOptions{Tier: cache.Packed}, Codec: "none"}, devices: 5, islands: []int{0, 0, 1, 2, 1}, lose: []int{1, 3}, equal: true},
	"resident":           {o: cache.Options{Budget: 110_000}, devices: 1, resident: &cache.ResidentOptions{Target: 32, MaxTarget: 128}},
	"resident, peers":    {o: cache.Options{Budget: 45_000, Codec: "ibp4"}, devices: 4, resident: &cache.ResidentOptions{Target: 64, MaxTarget: 96, Buddy: cache.BuddyPeer}},
	"resident, ranges":   {o: cache.Options{Budget: 48_000, Codec: "ibp4", Host: cache.HostOptions{Overlay: 20_000}}, devices: 2, resident: &cache.ResidentOptions{MaxTarget: 96, Retarget: true}},
	"pages":              {o: cache.Options{Budget: 40_000, Host: cache.HostOptions{Memory: 50_000}}, devices: 1},
	"pages, inclusive":   {o: cache.Options{Budget: 40_000, Host: cache.HostOptions{Memory: 70_000, Inclusive: true}}, devices: 1},
	"pages, 4 devices":   {o: cache.Options{Budget: 20_000, Host: cache.HostOptions{Memory: 50_000}, Devices: cache.DeviceOptions{Rates: hotRates}}, devices: 4, lose: []int{2, 0}},
	"pages that fail":    {o: cache.Options{Budget: 40_000, Host: cache.HostOptions{Memory: 50_000}}, devices: 2, failing: true},
	"pages, all fits":    {o: cache.Options{Budget: 40_000, Host: cache.HostOptions{Memory: 1 << 20}}, devices: 1},
}

// slowPages now and then delays a page, so that rows change while they are read.
func slowPages(ctx context.Context, _ uint32) error {
	if rand.IntN(8) == 0 {
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	}
	return nil
}

type modelCase struct {
	o       cache.Options
	devices int
	islands []int // devices that read each other's memory
	lose    []int // devices that are lost, one after the other
	failing bool  // pages cannot be read now and then
	equal   bool  // most rows are one of a few contents
	// resident, unless nil, is how the first table is resident. Without a target, rows are of two classes.
	resident *cache.ResidentOptions
}

// hotRates are rates for which the cost model copies some of the rows.
var hotRates = placement.Rates{Local: 100, Peer: 1, Host: 3}

// slowDevice is a device that now and then delays a batch after its lookup. The rows that it has found must stay unchanged meanwhile.
type slowDevice struct{ device.Device }

func (d slowDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return slowStream{s}, err
}

type slowStream struct{ device.Stream }

func (s slowStream) Launch(k device.Kernel) error {
	err := s.Stream.Launch(k)
	if k.Name() == "lookup" && rand.IntN(8) == 0 {
		time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
	}
	return err
}

func openSlow(n, workers int) []device.Device {
	devices := host.Open(n, workers)
	for i, d := range devices {
		devices[i] = slowDevice{d}
	}
	return devices
}

// TestCache_EqualsVersionedMap: while all other operations run, a Gather returns for each row a version that was current during the call.
// The test runs 250,000 operations, or 40,000 with -short. TestLong_EqualsVersionedMap runs more.
func TestCache_EqualsVersionedMap(t *testing.T) {
	defer cache.ServeApart()() // else a batch this small is one launch, and not held up in between
	operations := int64(250_000)
	if testing.Short() {
		operations = 40_000
	}
	for name, m := range modelCases {
		t.Run(name, func(t *testing.T) {
			m.o.Devices.Backend = "host"
			runModel(t, operations/int64(len(modelCases)), m, m.devices, openFaulty(t, m.islands))
		})
	}
}

// TestClose_BesideChanges: calls under way when Close is called finish or return ErrClosed, and none hangs.
func TestClose_BesideChanges(t *testing.T) {
	cache.OpenHostWith(t, openSlow)
	const rows, rowBytes = 300, 120
	rounds := gputest.Few(30, 12)
	for round := range rounds {
		m := newModel(rows, rows, rowBytes)
		path := filepath.Join(t.TempDir(), "snapshot")
		table, budget, resident := fromBytes(t, "x", m.source(), rowBytes), int64(20_000), round%4 == 3
		if resident {
			table, budget = table.ResidentWith(cache.ResidentOptions{Target: 32, MaxTarget: 128}), 60_000
		}
		c := newCache(t, cache.Options{
			Tables: []cache.Table{table}, Budget: budget, Devices: cache.DeviceOptions{Count: 1 + round%3, Backend: "host"}, Host: cache.HostOptions{Overlay: 1},
			Admission: cache.AdmissionOptions{Policy: &randomPolicy{}}, Refresh: cache.RefreshOptions{Interval: time.Millisecond},
		})
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), uint64(round)))
				for {
					ids := []int64{r.Int64N(rows)}
					var err error
					switch {
					case g < 2:
						err = m.update(c, 0, ids)
					case g == 2 && resident:
						err = c.Retarget(ctx, 0, 16*r.IntN(9))
					case g == 2:
						err = c.Refresh(ctx)
					case g == 3:
						err = c.Snapshot(path)
					case g == 4 && resident:
						err = c.Invalidate(0, ids)
					case g == 4:
						err = errors.Join(c.Invalidate(0, ids), c.SetBudget(ctx, 15_000+r.Int64N(5000)))
					default:
						err = m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids)
					}
					if errors.Is(err, cache.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(round) * 3 * time.Millisecond / time.Duration(rounds))
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// TestGPU_EqualsVersionedMap is TestCache_EqualsVersionedMap on a GPU, with Gathers into Go memory: a million operations.
func TestGPU_EqualsVersionedMap(t *testing.T) {
	modelOnGPU(t, gputest.Few(1_000_000, 2500), "in place", "packed", "overlay of one row", "resident", "resident, ranges")
}

// TestGPU_PagesEqualVersionedMap does the same with tables of pages. An operation takes several times as long, as the GPU waits for the host. An operation is a call: 100,000
// of them meet some 276,000 absent rows.
func TestGPU_PagesEqualVersionedMap(t *testing.T) {
	modelOnGPU(t, gputest.Few(100_000, 3500), "pages", "pages, inclusive", "pages that fail", "pages, all fits")
}

// modelOnGPU runs cases of the model on a GPU, with so many operations in all.
func modelOnGPU(t *testing.T, operations int, names ...string) {
	gputest.Require(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			m := modelCases[name]
			m.o.Devices.Backend, m.lose = "cuda", nil
			if m.resident != nil { // all of its rows are on the one device
				m.o.Budget *= int64(m.devices)
			}
			runModel(t, int64(operations/len(names)), m, 1, nil)
		})
	}
}
