package hashmap

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
)

func memory(l Layout) []byte {
	w := make([]uint64, l.Bytes()/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), l.Bytes())
}

func newMap(l Layout) *Map {
	m := View(memory(l), l)
	m.Clear()
	return m
}

func TestHash_Golden(t *testing.T) {
	// Values of an independent transcription of the finaliser.
	for key, want := range map[uint64]uint64{0: 0, 1: 0xb456bcfc34c2cb2c, Key(255, 12345): 0xce4603e807d30480} {
		if got := Hash(key); got != want {
			t.Errorf("Hash(%#x) = %#x, want %#x", key, got, want)
		}
		if got := Unhash(want); got != key {
			t.Errorf("Unhash(%#x) = %#x, want %#x", want, got, key)
		}
	}
}

// goldenBuilds were written by an independent transcription of the build: buckets, the map's CRC and its first bucket.
var goldenBuilds = map[int]string{
	6:   "2 crc 46174666\n000000000000fc000000000000180000020000000000fc0020000000003a0000040000000000fc0040000000005c0000ffffffffffffffffffffffffffffffff",
	600: "188 crc 324d07d4\n0000000000003c0000000000001800003402000000001c0040230000005c2300450200000000240150240000006d24003b01000000001c01b013000000cb1300",
}

func TestBuild_GoldenBytes(t *testing.T) {
	for n, want := range goldenBuilds {
		l := LayoutFor(int64(n))
		mem := memory(l)
		m := View(mem, l)
		var entries []Entry
		for i := range n {
			entries = append(entries, Entry{Key(i%2, int64(i)), slab.Compressed(i%8, int64(i)*16, i+1)})
		}
		if _, err := m.Build(entries); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%d crc %08x\n%s", l.Buckets, crc32.ChecksumIEEE(mem), hex.EncodeToString(mem[:64]))
		if got != want {
			t.Errorf("%d entries: got\n%s\nwant\n%s", n, got, want)
		}
	}
}

func TestBuild_OrderDoesNotMatterAndAllAreFound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 66 {
		if n == 64 {
			n = 1000
		} else if n == 65 {
			n = 50_000
		}
		l := LayoutFor(int64(n))
		entries := make([]Entry, n)
		for i := range entries {
			entries[i] = Entry{Key(i%3, r.Int64N(1<<40)<<8|int64(i&255)), slab.Raw(i%8, int64(i)*16)}
		}
		a, b := memory(l), memory(l)
		m := View(a, l)
		if rej, err := m.Build(entries); err != nil || len(rej) != 0 {
			t.Fatalf("%d entries: %d rejected, %v", n, len(rej), err)
		}
		for _, e := range entries {
			if got := m.Find(e.Key); got != e.Location {
				t.Fatalf("%d entries: Find(%#x) = %v, want %v", n, e.Key, got, e.Location)
			}
		}
		for range n {
			if got := m.Find(Key(9, r.Int64N(1<<50))); got != slab.NoLocation(slab.Cold) {
				t.Fatalf("absent key: %v", got)
			}
		}
		r.Shuffle(n, func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		View(b, l).Build(entries)
		if !bytes.Equal(a, b) {
			t.Fatalf("%d entries: bytes depend on their order", n)
		}
	}
}

func TestBuild_BadKeys(t *testing.T) {
	m := newMap(LayoutFor(4))
	for want, entries := range map[string][]Entry{
		"hashmap: key (0xffffffffffffffff) is reserved":        {{Key: EmptyKey}},
		"hashmap: key (0x4000000000001) is reserved":           {{Key: Key(0, 1<<50|1)}},
		"hashmap: key (0xff03fffffffffffe) is reserved":        {{Key: Key(255, MaxRows)}},
		"hashmap: key (table 2 row 7) must not be given twice": {{Key: Key(2, 7)}, {Key: 1}, {Key: Key(2, 7)}},
	} {
		if _, err := m.Build(entries); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestBuild_OverfullMapRejects builds far over capacity: what is not returned as rejected is found.
func TestBuild_OverfullMapRejects(t *testing.T) {
	l := LayoutFor(100)
	m := newMap(l)
	var entries []Entry
	for i := range 1000 {
		entries = append(entries, Entry{Key(0, int64(i)), slab.Raw(0, int64(i)*16)})
	}
	rejected, err := m.Build(entries)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		if got := m.Find(e.Key); got == e.Location {
			found++
		} else if !slices.Contains(rejected, e) {
			t.Fatalf("%#x neither found nor rejected", e.Key)
		}
	}
	if found+len(rejected) != 1000 || found < 100 || int64(found) > l.Slots() {
		t.Fatalf("%d found, %d rejected of 1000", found, len(rejected))
	}
	if m.Insert(Key(0, 1), slab.Raw(0, 0)) != (m.Find(Key(0, 1)) == slab.Raw(0, 0)) {
		t.Fatal("Insert's answer and Find disagree")
	}
}

// probed returns how many buckets Find reads for a key.
func (m *Map) probed(key uint64) int {
	p := m.layout.probe(Hash(key))
	word, _ := p.hintAt()
	for {
		b := m.bucket(p.bucket)
		for i := 0; i < len(b); i += 2 {
			if b[i]|hintBits == key|hintBits {
				return int(p.hops) + 1
			}
		}
		if !p.follow(p.hint(b[word])) {
			return int(p.hops) + 1
		}
	}
}

// TestFind_BucketsRead holds the buckets that finds read against what package documentation says, for maps that were built
// and for maps that were inserted into.
func TestFind_BucketsRead(t *testing.T) {
	const n = 100_000
	for name, want := range map[string][2]float64{"Build": {1.14, 1.06}, "Insert": {1.17, 1.07}} {
		m := newMap(LayoutFor(n))
		entries := make([]Entry, n)
		for i := range entries {
			entries[i] = Entry{Key(0, int64(2*i)), slab.Raw(0, int64(i)*16)}
		}
		if name == "Build" {
			m.Build(entries)
		} else {
			for _, e := range entries {
				m.Insert(e.Key, e.Location)
			}
		}
		there, absent := 0, 0
		for _, e := range entries {
			there += m.probed(e.Key)
			absent += m.probed(e.Key + 1)
		}
		if a, b := float64(there)/n, float64(absent)/n; a > want[0] || b > want[1] {
			t.Errorf("%s: %.3f buckets for keys that are there, %.3f for others, want at most %.2f and %.2f", name, a, b, want[0], want[1])
		}
	}
}

// TestFindAll finds what Find finds, and says whether every key has a location.
func TestFindAll(t *testing.T) {
	const n = 1000
	m := newMap(LayoutFor(n))
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = Key(3, int64(i))
		m.Insert(keys[i], slab.Compressed(slab.MaxSlabs-1, slab.MaxBytes-16, slab.MaxStored)) // the largest word of a location
	}
	locations := make([]slab.Location, n)
	check := func(what string, want bool) {
		t.Helper()
		if all := m.FindAll(keys, locations); all != want {
			t.Errorf("%s: all is %v", what, all)
		}
		for i, key := range keys {
			if locations[i] != m.Find(key) {
				t.Fatalf("%s: key %#x: %#x, want %#x", what, key, locations[i], m.Find(key))
			}
		}
	}
	check("all there", true)
	m.Insert(keys[7], slab.NoLocation(slab.Evicted))
	check("one without a location", false)
	m.Insert(keys[7], slab.Raw(0, 0))
	keys[n-1] = Key(4, 0)
	check("one absent", false)
}

// TestInsert_ReachesLoad inserts into maps of all sizes up to the load they are made for and a tenth more.
func TestInsert_ReachesLoad(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8, 13, 100, 1000, 30_000, 1_000_000} {
		if testing.Short() && n > 30_000 {
			continue
		}
		m := newMap(LayoutFor(int64(n)))
		for i := range int64(n) + int64(n)/16 {
			if !m.Insert(Key(7, i*3), slab.Raw(0, i*16)) {
				t.Errorf("map for %d entries rejects entry %d", n, i)
				break
			}
		}
		for i := range int64(n) {
			if l := m.Find(Key(7, i*3)); l != slab.Raw(0, i*16) {
				t.Fatalf("map for %d entries: entry %d is at %v", n, i, l)
			}
		}
	}
}

// TestInsert_RefusedChangesNothing fills small maps until they refuse a key, hints included.
func TestInsert_RefusedChangesNothing(t *testing.T) {
	for n := range int64(40) {
		l := LayoutFor(n)
		mem := memory(l)
		m := View(mem, l)
		m.Clear()
		model := map[uint64]slab.Location{}
		refused := 0
		for i := range 40 * (n + 1) {
			before := bytes.Clone(mem)
			if k := Key(0, i); m.Insert(k, slab.Raw(0, i*16)) {
				model[k] = slab.Raw(0, i*16)
			} else if refused++; !bytes.Equal(mem, before) {
				t.Fatal("an Insert that was refused changed the map")
			}
		}
		if refused == 0 || int64(len(model)) > l.Slots() {
			t.Fatalf("map of %d slots has %d keys", l.Slots(), len(model))
		}
		for k, l := range model {
			if m.Find(k) != l {
				t.Fatalf("key %#x of %d is lost", k, len(model))
			}
		}
	}
}

func TestLayout_BytesPerEntry(t *testing.T) {
	for _, n := range []int64{100, 1000, 25_000, 20_000_000} {
		l := LayoutFor(n)
		if per := float64(l.Bytes()) / float64(n); per > 20.5 || per < 20 {
			t.Errorf("%d entries: %.1f bytes each, want 20 to 20.5", n, per)
		}
	}
}

// FuzzMap runs a command stream against a Go map.
func FuzzMap(f *testing.F) {
	f.Add([]byte("\x08iabcdefeiijkdrecxiabcd"))
	r := rand.New(rand.NewPCG(3, 4))
	long := make([]byte, 4000)
	for i := range long {
		long[i] = byte(r.Uint32())
	}
	f.Add(long)
	f.Fuzz(func(t *testing.T, commands []byte) {
		if len(commands) == 0 {
			return
		}
		m := newMap(LayoutFor(int64(commands[0] % 64)))
		model := map[uint64]slab.Location{}
		var deleted []int64
		for i := 1; i+2 < len(commands); i += 3 {
			key := Key(int(commands[i+1]%2), int64(commands[i+1]))
			loc := slab.Raw(int(commands[i+2]%8), int64(i)*16)
			have, known := model[key]
			switch commands[i] % 8 {
			case 0, 1, 2, 3:
				if m.Insert(key, loc) {
					model[key] = loc
				} else if known {
					t.Fatalf("Insert of a known key (%#x) was refused", key)
				}
			case 4, 5:
				why := slab.Reason(commands[i+2] % slab.NumReasons)
				if m.Erase(key, why) != known {
					t.Fatalf("Erase(%#x) disagrees: known is %v", key, known)
				}
				if known {
					model[key] = slab.NoLocation(why)
				}
			case 6:
				slot, ok := m.Delete(key)
				if ok != (known && !have.Valid()) {
					t.Fatalf("Delete(%#x) = %v with %v", key, ok, have)
				}
				if ok {
					delete(model, key)
					deleted = append(deleted, slot)
				}
			case 7:
				for _, s := range deleted {
					m.Reclaim(s)
				}
				deleted = deleted[:0]
			}
			for k := range uint64(256) {
				k := Key(int(k%2), int64(k))
				want, ok := model[k]
				if !ok {
					want = slab.NoLocation(slab.Cold)
				}
				if got := m.Find(k); got != want {
					t.Fatalf("after command %d: Find(%#x) = %v, want %v", i, k, got, want)
				}
			}
		}
	})
}

// TestFind_BesideWriter looks up while a writer inserts, erases, deletes and, between epochs, reclaims: a reader sees
// the key's own location or none, never another key's.
func TestFind_BesideWriter(t *testing.T) {
	const keys = 64
	m := newMap(LayoutFor(keys / 2))
	own := func(k int64, version int64) slab.Location { return slab.Raw(int(k%8), (k*1000+version)*16) }
	var stop atomic.Bool
	var epoch sync.RWMutex // readers hold it for one batch; taking it exclusively lets an epoch pass
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				epoch.RLock()
				for k := range int64(keys) {
					if l := m.Find(Key(0, k)); l.Valid() && (l.Slab() != int(k%8) || l.Offset()/16/1000 != k) {
						t.Errorf("key %d has another's location: %v", k, l)
					}
				}
				epoch.RUnlock()
			}
		})
	}
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 20_000 {
		k := r.Int64N(keys)
		switch r.IntN(3) {
		case 0:
			m.Insert(Key(0, k), own(k, int64(i%1000)))
		case 1:
			m.Erase(Key(0, k), slab.Evicted)
		default:
			if slot, ok := m.Delete(Key(0, k)); ok {
				epoch.Lock()
				m.Reclaim(slot)
				epoch.Unlock()
			}
		}
	}
	stop.Store(true)
	wg.Wait()
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{25_000, 5_000_000} {
		m := newMap(LayoutFor(int64(n)))
		entries := make([]Entry, n)
		for i := range entries {
			entries[i] = Entry{Key(0, int64(i)), slab.Raw(0, int64(i)*16)}
		}
		if _, err := m.Build(entries); err != nil {
			b.Fatal(err)
		}
		for _, hit := range []bool{true, false} {
			b.Run(fmt.Sprintf("entries=%d/hit=%v", n, hit), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				keys := make([]uint64, 1<<16)
				for i := range keys {
					keys[i] = Key(0, r.Int64N(int64(n)))
					if !hit {
						keys[i] += Key(1, 0)
					}
				}
				for i := range b.N {
					if m.Find(keys[i&(1<<16-1)]).Valid() != hit {
						b.Fatal("wrong answer")
					}
				}
			})
		}
	}
}

// TestHome_GrowsWithHash is what Build's sort relies on.
func TestHome_GrowsWithHash(t *testing.T) {
	l := LayoutFor(12345)
	r := rand.New(rand.NewPCG(7, 8))
	for range 10_000 {
		a, b := r.Uint64(), r.Uint64()
		if a < b && l.home(a) > l.home(b) || l.home(a) >= l.Buckets {
			t.Fatalf("home(%#x) = %d, home(%#x) = %d of %d", a, l.home(a), b, l.home(b), l.Buckets)
		}
	}
	if l.home(^uint64(0)) != l.Buckets-1 {
		t.Fatalf("home of the last hash = %d of %d", l.home(^uint64(0)), l.Buckets)
	}
}

// TestMap_StoresMakeACopy: whoever repeats the stores on a copy of the memory has an equal map, after each operation.
// Alongside, Slot, All, Room and Rivals say what there is.
func TestMap_StoresMakeACopy(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	l := LayoutFor(200)
	mem, replica := memory(l), memory(l)
	m, copied := View(mem, l), View(replica, l)
	m.Clear()
	copied.Clear()
	m.OnStore(func(word int64, value uint64) { copied.words[word] = value })
	model := map[uint64]slab.Location{}
	var deleted []int64
	full := 0
	for i := range 30_000 {
		key := Key(i%2, r.Int64N(260))
		switch r.IntN(6) {
		case 0, 1, 2:
			loc := slab.Raw(i%8, int64(i)*16)
			room := m.Room(key)
			if put := m.Insert(key, loc); put != room {
				t.Fatalf("Room says %v, Insert %v", room, put)
			} else if put {
				model[key] = loc
				break
			}
			// With one of its rivals gone, there is room.
			full++
			var rivals []uint64
			for k := range m.Rivals(key) {
				if _, ok := model[k]; !ok {
					t.Fatalf("rival %#x is not in the map", k)
				}
				rivals = append(rivals, k)
			}
			if len(rivals) > 0 {
				victim := rivals[0]
				m.Erase(victim, slab.Evicted)
				slot, _ := m.Delete(victim)
				delete(model, victim)
				m.Reclaim(slot)
				if m.Insert(key, loc) {
					model[key] = loc
				} else if uint32(slot/BucketSlots) == l.home(Hash(key)) {
					t.Fatal("no room for a key whose rival is gone")
				}
			}
		case 3:
			if m.Erase(key, slab.Evicted) {
				model[key] = slab.NoLocation(slab.Evicted)
			}
		case 4:
			if slot, ok := m.Delete(key); ok {
				if deleted = append(deleted, slot); r.IntN(2) == 0 {
					m.Reclaim(deleted[0])
					deleted = deleted[1:]
				}
				delete(model, key)
			}
		default:
			slot, ok := m.Slot(key)
			if _, known := model[key]; ok != known || ok && m.words[2*slot]|hintBits != key|hintBits {
				t.Fatalf("Slot(%#x) = %d, %v", key, slot, ok)
			}
		}
		if !bytes.Equal(mem, replica) {
			t.Fatalf("operation %d: the copy differs", i)
		}
	}
	found := map[uint64]slab.Location{}
	for k, loc := range m.All() {
		found[k] = loc
	}
	for k, loc := range model {
		if !loc.Valid() {
			delete(model, k)
		} else if found[k] != loc {
			t.Fatalf("All has %v for %#x, want %v", found[k], k, loc)
		}
	}
	if len(found) != len(model) || full == 0 {
		t.Fatalf("All has %d keys, want %d; the map was full %d times", len(found), len(model), full)
	}
}

// TestMap_ChurnDoesNotWearItOut: however many keys come and go, lookups stay short, of keys that are there and of others.
func TestMap_ChurnDoesNotWearItOut(t *testing.T) {
	race.SkipSequential(t)
	const n, turns = 20_000, 30
	l := LayoutFor(n)
	m := newMap(l)
	r := rand.New(rand.NewPCG(1, 1))
	var entries []Entry
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = Key(0, int64(i)*7919)
		entries = append(entries, Entry{keys[i], slab.Raw(0, int64(i)*16)})
	}
	if _, err := m.Build(entries); err != nil {
		t.Fatal(err)
	}
	buckets := func(key uint64) float64 {
		p := l.probe(Hash(key))
		hintWord, _ := p.hintAt()
		for n := 1.; ; n++ {
			b := m.bucket(p.bucket)
			for i := 0; i < len(b); i += 2 {
				if b[i]|hintBits == key|hintBits {
					return n
				}
			}
			if !p.follow(p.hint(b[hintWord])) {
				return n
			}
		}
	}
	mean := func(key func() uint64) float64 {
		sum := 0.
		for range 20_000 {
			sum += buckets(key())
		}
		return sum / 20_000
	}
	for turn := range turns {
		for i := range n {
			at := r.IntN(n)
			if !m.Erase(keys[at], slab.Evicted) {
				t.Fatalf("key %#x is lost", keys[at])
			}
			slot, _ := m.Delete(keys[at])
			m.Reclaim(slot)
			keys[at] = Key(0, int64(n*(turn+1)+i)*7919)
			if !m.Insert(keys[at], slab.Raw(0, 16)) {
				t.Fatal("the map is full")
			}
		}
	}
	for _, key := range keys {
		if m.Find(key) != slab.Raw(0, 16) {
			t.Fatalf("key %#x is lost", key)
		}
	}
	there := mean(func() uint64 { return keys[r.IntN(n)] })
	absent := mean(func() uint64 { return Key(1, r.Int64N(1<<40)) })
	t.Logf("after %d turns: %.2f buckets a lookup of a key that is there, %.2f of another", turns, there, absent)
	if there > 1.7 || absent > 1.4 {
		t.Errorf("after %d turns: %.2f buckets a lookup of a key that is there, %.2f of another", turns, there, absent)
	}
}
