package demand

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/bench/trace"
)

// The models do what the papers say on plain slices: the first element of a list is the oldest.

type model struct {
	capacity int64
	size     []int64
	lists    [5][]uint32
	count    map[uint32]int
	clock    float64
	rank     map[uint32]float64
	hand     int // of sieve: index in lists[0]
	target   float64
	s4       s4Parameters
	pushes   float64  // of s4fifo: rows that entered lists[0]
	full     bool     // of s4fifo: whether a row had to go
	future   []uint32 // the trace
	now      int
}

func (m *model) sum(lists ...int) (n int64) {
	for _, l := range lists {
		for _, id := range m.lists[l] {
			n += m.size[id]
		}
	}
	return n
}

func (m *model) in(list int, id uint32) bool { return slices.Contains(m.lists[list], id) }

func (m *model) drop(list int, id uint32) bool {
	i := slices.Index(m.lists[list], id)
	if i >= 0 {
		m.lists[list] = slices.Delete(m.lists[list], i, i+1)
	}
	return i >= 0
}

func (m *model) add(list int, id uint32) { m.lists[list] = append(m.lists[list], id) }

func (m *model) shift(list int) uint32 {
	id := m.lists[list][0]
	m.lists[list] = m.lists[list][1:]
	return id
}

func (m *model) ghost(list int, id uint32, most int64) {
	if m.size[id] > most {
		return
	}
	for m.sum(list)+m.size[id] > most {
		m.shift(list)
	}
	m.add(list, id)
}

func (m *model) remove(id uint32) {
	if i := slices.Index(m.lists[0], id); i >= 0 && i < m.hand {
		m.hand--
	}
	for l := range m.lists {
		m.drop(l, id)
	}
	if m.hand >= len(m.lists[0]) {
		m.hand = 0
	}
}

// nextGet is when the row is asked for next; what is set or deleted before counts as never.
func (m *model) nextGet(id uint32, ops []trace.Op) int {
	for i := m.now + 1; i < len(m.future); i++ {
		if m.future[i] == id {
			if ops != nil && ops[i] != trace.Get {
				break
			}
			return i
		}
	}
	return never
}

// access of each policy.
func (m *model) access(policy string, id uint32, ops []trace.Op) bool {
	size := m.size[id]
	full := func(lists ...int) bool { return m.sum(lists...)+size > m.capacity }
	switch policy {
	case "lru", "fifo":
		if m.in(0, id) {
			if policy == "lru" {
				m.drop(0, id)
				m.add(0, id)
			}
			return true
		}
		if size > m.capacity {
			return false
		}
		for full(0) {
			m.shift(0)
		}
		m.add(0, id)
	case "lfu", "gdsf": // the list is in the order in which rows got their rank
		hit := m.drop(0, id)
		if !hit {
			if size > m.capacity {
				return false
			}
			for full(0) {
				victim := slices.MinFunc(m.lists[0], func(a, b uint32) int {
					switch {
					case m.rank[a] < m.rank[b]:
						return -1
					case m.rank[a] > m.rank[b]:
						return 1
					}
					return 0
				})
				m.clock = m.rank[victim]
				m.drop(0, victim)
			}
			m.count[id] = 0
		}
		m.count[id]++
		m.rank[id] = float64(m.count[id])
		if policy == "gdsf" {
			m.rank[id] = m.clock + m.rank[id]*1e6/float64(size)
		}
		m.add(0, id)
		return hit
	case "sieve":
		if m.in(0, id) {
			m.count[id] = 1
			return true
		}
		if size > m.capacity {
			return false
		}
		for full(0) {
			for m.count[m.lists[0][m.hand]] == 1 {
				m.count[m.lists[0][m.hand]] = 0
				m.hand = (m.hand + 1) % len(m.lists[0])
			}
			m.lists[0] = slices.Delete(m.lists[0], m.hand, m.hand+1)
			if m.hand == len(m.lists[0]) {
				m.hand = 0
			}
		}
		m.count[id] = 0
		m.add(0, id)
	case "2q": // 0: A1in, 1: Am, 2: A1out
		if m.in(0, id) {
			return true
		}
		if m.drop(1, id) {
			m.add(1, id)
			return true
		}
		again := m.drop(2, id)
		if size > m.capacity {
			return false
		}
		for full(0, 1) {
			if m.sum(0) > m.capacity/4 || len(m.lists[1]) == 0 {
				m.ghost(2, m.shift(0), m.capacity/2)
			} else {
				m.shift(1)
			}
		}
		if again {
			m.add(1, id)
		} else {
			m.add(0, id)
		}
	case "s4fifo": // 0: small, 1: main, 2: ghost; rank: how many rows had entered the small list
		small, ghost := int64(float64(m.capacity)*m.s4.smallSize), int64(float64(m.capacity)*m.s4.ghostSize)
		if m.in(0, id) {
			if m.pushes-m.rank[id] >= math.Floor(m.s4.skip*float64(len(m.lists[0]))) {
				m.count[id]++
			}
			return true
		}
		again := m.s4.ghostToMain == 0 && m.drop(2, id)
		if m.in(1, id) {
			m.count[id]++
			return true
		}
		if size > m.capacity || size > max(1, small) {
			return false
		}
		for full(0, 1) {
			m.full = true
			list, gone := 0, false
			if m.sum(1) > m.capacity-small || len(m.lists[0]) == 0 {
				list = 1
			}
			for !gone && len(m.lists[list]) > 0 {
				victim := m.shift(list)
				switch n := m.count[victim]; {
				case list == 1 && n > 0:
					m.count[victim] = min(n, 3) - 1
					m.add(1, victim)
				case list == 0 && n >= m.s4.moveToMain:
					m.count[victim] = 0
					m.add(1, victim)
				case list == 0 && !m.in(2, victim):
					m.ghost(2, victim, ghost)
					gone = true
				default:
					gone = true
				}
			}
		}
		m.count[id] = 0
		switch {
		case again, !m.full && m.sum(0) >= small && (size < small || small <= 1):
			m.add(1, id)
		case size < small || small <= 1:
			m.add(0, id)
			m.rank[id] = m.pushes
			m.pushes++
		}
	case "s3fifo": // 0: small, 1: main, 2: ghost
		if m.in(0, id) || m.in(1, id) {
			m.count[id]++
			return true
		}
		again := m.drop(2, id)
		small := m.capacity / 10
		if size > m.capacity || size > max(1, small) {
			return false
		}
		for full(0, 1) {
			evicted := false
			if m.sum(1) > m.capacity-small || len(m.lists[0]) == 0 {
				for !evicted && len(m.lists[1]) > 0 {
					victim := m.shift(1)
					if evicted = m.count[victim] == 0; !evicted {
						m.count[victim] = min(m.count[victim], 3) - 1
						m.add(1, victim)
					}
				}
				continue
			}
			for !evicted && len(m.lists[0]) > 0 {
				victim := m.shift(0)
				if evicted = m.count[victim] < 2; evicted {
					m.ghost(2, victim, m.capacity*9/10)
				} else {
					m.count[victim] = 0
					m.add(1, victim)
				}
			}
		}
		m.count[id] = 0
		if again {
			m.add(1, id)
		} else {
			m.add(0, id)
		}
	case "arc": // 0: T1, 1: T2, 2: B1, 3: B2; rows of one size
		c := int(m.capacity)
		n := func(l int) int { return len(m.lists[l]) }
		replace := func(fromB2 bool) {
			if n(0) > 0 && (float64(n(0)) > m.target || fromB2 && float64(n(0)) == m.target) {
				m.add(2, m.shift(0))
			} else {
				m.add(3, m.shift(1))
			}
		}
		switch {
		case m.in(0, id) || m.in(1, id):
			m.drop(0, id)
			m.drop(1, id)
			m.add(1, id)
			return true
		case m.in(2, id):
			m.target = min(m.target+max(float64(n(3))/float64(n(2)), 1), float64(c))
			replace(false)
			m.drop(2, id)
			m.add(1, id)
		case m.in(3, id):
			m.target = max(m.target-max(float64(n(2))/float64(n(3)), 1), 0)
			replace(true)
			m.drop(3, id)
			m.add(1, id)
		default:
			if n(0)+n(2) == c {
				if n(0) < c {
					m.shift(2)
					replace(false)
				} else {
					m.shift(0)
				}
			} else if total := n(0) + n(1) + n(2) + n(3); total >= c {
				if total == 2*c {
					m.shift(3)
				}
				replace(false)
			}
			m.add(0, id)
		}
	case "belady", "beladybypass":
		if m.in(0, id) {
			return true
		}
		if size > m.capacity {
			return false
		}
		if policy == "beladybypass" {
			m.add(0, id)
			size = 0
		}
		for full(0) {
			m.drop(0, slices.MaxFunc(m.lists[0], func(a, b uint32) int { return m.nextGet(a, ops) - m.nextGet(b, ops) }))
		}
		if policy == "belady" {
			m.add(0, id)
		}
	}
	return false
}

// drawTrace draws a trace of few rows, so that all that can happen happens.
func drawTrace(t *rapid.T, sized, gets bool) *Trace {
	rows := rapid.IntRange(1, 40).Draw(t, "rows")
	n := rapid.IntRange(1, 600).Draw(t, "requests")
	skew := rapid.IntRange(1, 3).Draw(t, "skew")
	tr := &Trace{Rows: rows}
	// From one seed: shrinking six hundred draws takes minutes.
	r := rapid.Uint64().Draw(t, "seed")
	draw := func(n int) int {
		r = r*6364136223846793005 + 1442695040888963407
		return int(r >> 33 % uint64(n))
	}
	for range n {
		id := draw(rows)
		for range skew - 1 {
			id = draw(id + 1)
		}
		tr.IDs = append(tr.IDs, uint32(id))
		if !gets {
			op := trace.Get
			if draw(8) == 0 {
				op = trace.Op(1 + draw(2))
			}
			tr.Ops = append(tr.Ops, op)
		}
	}
	if sized {
		for range rows {
			tr.Sizes = append(tr.Sizes, int64(1+draw(9)))
		}
	}
	tr.PrepareFuture()
	return tr
}

// TestRun_EqualsModel: every request hits where it does in the model.
func TestRun_EqualsModel(t *testing.T) {
	for _, name := range []string{"lru", "fifo", "lfu", "gdsf", "sieve", "2q", "s3fifo", "s4fifo", "arc", "belady", "beladybypass"} {
		for _, kind := range []struct{ sized, gets bool }{{false, true}, {false, false}, {true, true}, {true, false}} {
			if name == "arc" && (kind.sized || !kind.gets) {
				continue // the paper has neither
			}
			if (name == "belady" || name == "beladybypass") && kind.sized {
				continue // ties between rows that never come back are broken as one likes
			}
			t.Run(fmt.Sprintf("policy=%s/sized=%v/gets=%v", name, kind.sized, kind.gets), func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) {
					tr := drawTrace(rt, kind.sized, kind.gets)
					capacity := int64(rapid.IntRange(1, 45).Draw(rt, "capacity"))
					s4 := s4Parameters{smallSize: 0.1, ghostSize: 0.9, moveToMain: 2}
					full := name
					if name == "s4fifo" && rapid.Bool().Draw(rt, "parameters") {
						ratios := rapid.Float64Range(0.05, 0.95)
						s4 = s4Parameters{ratios.Draw(rt, "small"), 2 * ratios.Draw(rt, "ghost"), ratios.Draw(rt, "skip"), rapid.IntRange(0, 4).Draw(rt, "moves"), rapid.IntRange(0, 1).Draw(rt, "ghosts")}
						full = fmt.Sprintf("s4fifo:small-size-ratio=%v:ghost-size-ratio=%v:small-skip-ratio=%v:move-to-main-threshold=%d:ghost-to-main-threshold=%d", s4.smallSize, s4.ghostSize, s4.skip, s4.moveToMain, s4.ghostToMain)
					}
					p, err := Lookup(full)
					if err != nil {
						rt.Fatal(err)
					}
					m := &model{capacity: capacity, size: tr.Sizes, count: map[uint32]int{}, rank: map[uint32]float64{}, future: tr.IDs, s4: s4}
					if m.size == nil {
						m.size = slices.Repeat([]int64{1}, tr.Rows)
					}
					// The cache runs request by request, so that it fails where it goes wrong.
					c := Config{Capacity: capacity, rows: tr.Rows, sizes: sizes{tr.Sizes}, trace: tr, future: &future{next: tr.next}}
					r := run{Trace: tr, Config: c, cache: p.New(c), future: c.future}
					want, all := Outcome{}, Outcome{}
					for i, id := range tr.IDs {
						m.now = i
						op := trace.Get
						if tr.Ops != nil {
							op = tr.Ops[i]
						}
						if op == trace.Delete {
							m.remove(id)
						} else {
							hit := m.access(name, id, tr.Ops)
							if op == trace.Get {
								want.Requests++
								want.Bytes += m.size[id]
								if !hit {
									want.Misses++
									want.MissBytes += m.size[id]
								}
							}
						}
						if r.part(i, i+1, &all); all != want {
							rt.Fatalf("request %d, of row %d: %+v, want %+v", i, id, all, want)
						}
					}
				})
			})
		}
	}
}

// TestRun_Bound: from an empty start and with rows of one size, no policy that always admits misses less than belady, and none less
// than beladybypass.
func TestRun_Bound(t *testing.T) {
	declines := map[string]bool{"beladybypass": true, "tinylfu": true, "belady-size": true}
	rapid.Check(t, func(rt *rapid.T) {
		tr := drawTrace(rt, false, true)
		capacity := int64(rapid.IntRange(2, 45).Draw(rt, "capacity"))
		belady, bypass := simulate(t, tr, "belady", capacity), simulate(t, tr, "beladybypass", capacity)
		for _, name := range Names() {
			if p, _ := Lookup(name); p.Prefilled {
				continue
			}
			out := simulate(t, tr, name, capacity)
			if !declines[name] && out.Misses < belady.Misses || out.Misses < bypass.Misses {
				rt.Errorf("%s misses %d times, belady %d, beladybypass %d", name, out.Misses, belady.Misses, bypass.Misses)
			}
		}
	})
	for name := range traceFiles {
		if name == "oltp" { // takes as long as the others together; TestRun_ReferenceMissRatios holds belady itself on it
			continue
		}
		tr := load(t, name).Unit()
		for _, share := range []int{1000, 100, 10, 3} {
			capacity := max(2, int64(tr.Rows/share))
			belady, bypass := simulate(t, tr, "belady", capacity), simulate(t, tr, "beladybypass", capacity)
			for _, policy := range Names() {
				if p, _ := Lookup(policy); p.Prefilled {
					continue
				}
				out := simulate(t, tr, policy, capacity)
				if !declines[policy] && out.Misses < belady.Misses || out.Misses < bypass.Misses {
					t.Errorf("%s of %d rows: %s misses %d times, belady %d, beladybypass %d", name, capacity, policy, out.Misses, belady.Misses, bypass.Misses)
				}
			}
		}
	}
}

// TestRun_StaticOptimal: a cache that is never changed misses what the most popular rows leave.
func TestRun_StaticOptimal(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := drawTrace(rt, false, true)
		capacity := rapid.IntRange(1, 45).Draw(rt, "capacity")
		counts := make([]int, tr.Rows)
		for _, id := range tr.IDs {
			counts[id]++
		}
		slices.Sort(counts)
		want := 0
		for _, n := range counts[:max(0, tr.Rows-capacity)] {
			want += n
		}
		if out := simulate(t, tr, "static-optimal", int64(capacity)); out.Misses != int64(want) {
			rt.Errorf("%d misses, want %d", out.Misses, want)
		}
	})
}

// TestRun_ChangedSizes: a row that comes back longer is another one, and what it takes is counted.
func TestRun_ChangedSizes(t *testing.T) {
	tr, err := Load("test", &requests{{ID: 9, Size: 4}, {ID: 9, Size: 4}, {ID: 9, Size: 6}, {ID: 8, Size: 4}, {ID: 9, Size: 6}, {ID: 7, Size: 1}, {ID: 8, Size: 4}, {ID: 9, Size: 6}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lru", "gdsf", "sieve", "arc", "fifo"} {
		// 9 of 4 bytes, hit, 9 of 6 bytes, 8, hit, then 7 makes one go.
		out := simulate(t, tr, name, 10)
		if out.Requests != 8 || out.Bytes != 35 || out.Misses < 5 || out.Misses > 6 {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if u := simulate(t, tr.Unit(), "lru", 2); u.Misses != 5 || u.Bytes != 8 {
		t.Errorf("%+v", u)
	}
}

// requests is a trace in memory.
type requests []trace.Request

func (r *requests) Read(dst []trace.Request) (int, error) {
	m := memory{make([]uint64, len(*r))}
	n, err := m.Read(dst)
	copy(dst[:n], *r)
	*r = (*r)[n:]
	return n, err
}
func (r *requests) Close() error { return nil }

func TestLoad(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 5000).Draw(rt, "requests")
		sized := rapid.SampledFrom([]int{0, 1, 7, 4000}).Draw(rt, "sized") // every how many requests
		ops := rapid.SampledFrom([]int{0, 1, 7, 4000}).Draw(rt, "ops")
		ids := rapid.IntRange(1, 4000).Draw(rt, "ids")
		all := make(requests, n)
		for i := range all {
			q := &all[i]
			q.ID = mix(uint64(i*i%ids)) | 1
			if sized != 0 && i%sized == sized-1 {
				q.Size = int64(q.ID>>60) + 1
			}
			if ops != 0 && i%ops == ops-1 {
				q.Op = trace.Set
			}
		}
		given := slices.Clone(all)
		tr, err := Load("test", &all)
		if err != nil {
			rt.Fatal(err)
		}
		numbers := map[uint64]uint32{}
		for i, q := range given {
			want, ok := numbers[q.ID]
			if !ok {
				want = uint32(len(numbers))
				numbers[q.ID] = want
			}
			if tr.IDs[i] != want || tr.Ops != nil && tr.Ops[i] != q.Op || tr.Ops == nil && q.Op != trace.Get ||
				tr.Sizes != nil && tr.Size(i) != q.Size || tr.Sizes == nil && q.Size != 0 {
				rt.Fatalf("request %d is %d, want %d; of %+v", i, tr.IDs[i], want, q)
			}
		}
		if len(tr.IDs) != n || tr.Rows != len(numbers) || tr.Sizes != nil && len(tr.Sizes) != tr.Rows {
			rt.Fatalf("%d requests of %d rows", len(tr.IDs), tr.Rows)
		}
	})
}

// TestRun_NoAllocations: what a run allocates does not depend on the requests.
func TestRun_NoAllocations(t *testing.T) {
	tr := &Trace{Rows: 1000}
	for i := range 200_000 {
		tr.IDs = append(tr.IDs, uint32(mix(uint64(i))%1000*(mix(uint64(i)+1)%1000)/1000))
	}
	tr.PrepareFuture()
	for _, name := range Names() {
		if p, _ := Lookup(name); p.UnitOnly {
			continue // other people's
		}
		if n := testing.AllocsPerRun(1, func() { simulate(t, tr, name, 100) }); n > 100 {
			t.Errorf("%s: %.0f allocations for 200,000 requests", name, n)
		}
	}
}

func TestRun_Bad(t *testing.T) {
	tr := &Trace{IDs: []uint32{0}, Rows: 1}
	belady, _ := Lookup("belady")
	if _, err := tr.Run(t.Context(), belady, Config{Capacity: 1}, 0); err == nil || err.Error() != "sim: policy belady needs the trace's future" {
		t.Error(err)
	}
	if _, err := tr.Run(t.Context(), belady, Config{}, 0); err == nil || err.Error() != "sim: cache size (0) must be at least 1" {
		t.Error(err)
	}
	glru, _ := Lookup("glru-2q")
	if _, err := (&Trace{IDs: []uint32{0}, Rows: 1, Sizes: []int64{5}}).Run(t.Context(), glru, Config{Capacity: 1}, 0); err == nil {
		t.Error("golang-lru knows sizes")
	}
	if _, err := Load("test", &requests{{ID: 1, Size: -4}}); err == nil || err.Error() != "sim: test: request 0: size (-4) must be 0 to 2147483648" {
		t.Error(err)
	}
}
