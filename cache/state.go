package cache

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/internal/statefolder"
	"github.com/tensorcache/tensorcache/transfer"
)

// state is the memory of a cache with Options.State. A nil state keeps nothing.
//
// What the next owner relies on are the host tiers and the rows of the overlay, each with a note: docs/design/restart.md. Slabs and hashmaps are made anew. The slabs' memory is
// used again, and the old hashmap says which rows had been cached.
type state struct {
	cache  *Cache
	folder *statefolder.Folder
	home   device.Device
	begun  time.Time

	was     map[string]*stateTable // of the owner before, by name
	noted   *place.Noted           // its overlay
	cached  device.Buffer          // its hashmap, if that is host memory
	numbers map[int]int            // tables taken over: number then → number now
	words   []device.Buffer

	mu     sync.Mutex
	tables []*stateTable // of this owner, as the next one finds them
}

// stateVersion is the version of what lies in a folder, manifest and memory. A change of formats there needs another one; a cache of one version takes over what has its own or stateOldest.
const (
	stateVersion = 1
	stateOldest  = 1
)

// stateData is what the next owner must know besides the memory.
type stateData struct {
	Version int           `json:"version"`
	Tables  []*stateTable `json:"tables"`
}

// stateTable is a table all of whose rows are in host memory. Everything before Number must be the same for a table to be taken over.
type stateTable struct {
	Name     string `json:"name"`
	Source   string `json:"source"`
	DType    string `json:"dtype"`
	RowBytes int    `json:"row_bytes"`
	Capacity int64  `json:"capacity"`
	Codec    string `json:"codec"` // as asked for
	Layout   string `json:"layout"`

	Number int               `json:"number"`
	Tier   transfer.KeptTier `json:"tier"`
	keep   *transfer.Keep    // of this owner
}

// differs says in what a table differs from one of the owner before, "" if in nothing.
func (t *stateTable) differs(was *stateTable) string {
	for _, d := range []struct {
		what     string
		now, was any
	}{
		{"file", t.Source, was.Source}, {"element type", t.DType, was.DType}, {"row bytes", t.RowBytes, was.RowBytes}, {"capacity", t.Capacity, was.Capacity},
		{"codec", t.Codec, was.Codec}, {"layout", t.Layout, was.Layout},
	} {
		if d.now != d.was {
			return fmt.Sprintf("its %s was %q, and is %q", d.what, fmt.Sprint(d.was), fmt.Sprint(d.now))
		}
	}
	return ""
}

// openState takes the folder, and reads what the owner before has left there.
func (c *Cache) openState() error {
	if c.opts.State == "" {
		return nil
	}
	folder, err := statefolder.Open(c.opts.State)
	if err != nil {
		return fmt.Errorf("cache: State: %w", err)
	}
	c.set.Kept = folder
	s := &state{cache: c, folder: folder, home: c.set.Devices[0].Device, begun: time.Now(), was: map[string]*stateTable{}, numbers: map[int]int{}}
	c.state = s
	if err := s.read(); errors.Is(err, statefolder.ErrLost) {
		s.log(slog.LevelInfo, "state: nothing is taken over", slog.Any("reason", err))
		s.was = nil
	} else if err != nil { // it may be there for the next New
		return fmt.Errorf("cache: State: %w", err)
	}
	return nil
}

func (s *state) log(level slog.Level, text string, attrs ...any) {
	s.cache.watch.Log.Log(context.Background(), level, text, append([]any{slog.String("state", s.folder.String())}, attrs...)...)
}

// read reads what the owner before has left. An error that wraps ErrLost says why nothing can be taken over.
func (s *state) read() error {
	raw, err := s.folder.Load()
	if err != nil {
		return err
	}
	var data stateData
	if err := json.Unmarshal(raw, &data); err != nil {
		return fmt.Errorf("%w: %w", statefolder.ErrLost, err)
	}
	if data.Version < stateOldest || data.Version > stateVersion {
		return fmt.Errorf("%w: its version is %d, and this program takes over %d to %d", statefolder.ErrLost, data.Version, stateOldest, stateVersion)
	}
	// Without the overlay's rows nobody knows which rows of host tiers are old or half written.
	if s.noted, err = place.TakeNoted(s.folder, s.home); err != nil {
		return err
	}
	if n := s.noted.Damaged; n > 0 {
		return fmt.Errorf("%w: %d rows of the overlay do not have their checksums", statefolder.ErrLost, n)
	}
	for _, t := range data.Tables {
		s.was[t.Name] = t
	}
	if !s.home.NeedsStaging() {
		s.cached, err = s.folder.TakeAny(s.home, read.MapRole(0), "hashmap") // without it, which rows were cached is not known
		if err != nil {
			s.log(slog.LevelInfo, "state: cached rows are not known", slog.Any("reason", err))
		}
	}
	return nil
}

// table describes a table that is loaded.
func (s *state) table(l loading) *stateTable {
	t, o := l.table, &s.cache.opts
	return &stateTable{
		Name: t.name, Source: t.stamp, DType: t.dtype.String(), RowBytes: t.RowBytes(), Capacity: max(int64(t.Rows()), t.capacity), Codec: string(s.cache.codecOf(*t)),
		Layout: fmt.Sprintf("%s, equal rows %t", o.Host.Tier, !o.Host.NoEqualRows), Number: l.number,
	}
}

// newKeep returns what keeps a table's tier, but its words.
func (s *state) newKeep(t *stateTable) *transfer.Keep {
	sum := sha256.Sum256([]byte(t.Name))
	t.keep = &transfer.Keep{Folder: s.folder, Name: fmt.Sprintf("table-%x", sum[:8])}
	return t.keep
}

const wordsRole = ".words"

// setWords has a table's words in memory.
func (s *state) setWords(k *transfer.Keep, b device.Buffer) {
	s.words = append(s.words, b)
	k.Words = unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b.Bytes()))), transfer.KeptWords)
}

// take returns a table that is taken over, nil if it has to be loaded. After an error, such as too many open files, the folder still has the table.
func (s *state) take(l loading) (*read.Table, error) {
	if s == nil || len(s.was) == 0 {
		return nil, nil
	}
	now := s.table(l)
	loaded, err := s.tryTake(now, l)
	if err != nil && !errors.Is(err, statefolder.ErrLost) {
		return nil, fmt.Errorf("cache: State: %w", err)
	}
	if err != nil {
		k := s.newKeep(now)
		s.folder.Discard(append(k.Roles(), k.Name+wordsRole)...) // before as much memory is allocated again
		s.log(slog.LevelWarn, "state: table is dropped and loaded anew", slog.String("table", now.Name), slog.Any("reason", err))
		return nil, nil
	}
	s.log(slog.LevelInfo, "state: table is taken over", slog.String("table", now.Name), slog.Int64("rows", loaded.Tier.Rows()))
	s.tables = append(s.tables, now)
	s.numbers[s.was[now.Name].Number] = now.Number
	return loaded, nil
}

// tryTake returns a table that is taken over. The error wraps ErrLost if that one is not the table, or is damaged.
func (s *state) tryTake(now *stateTable, l loading) (*read.Table, error) {
	was := s.was[now.Name]
	if was == nil {
		return nil, fmt.Errorf("%w: there was no table of that name", statefolder.ErrLost)
	}
	if now.Source == "" {
		return nil, fmt.Errorf("%w: its rows come from no file, so they may be others", statefolder.ErrLost)
	}
	if why := now.differs(was); why != "" {
		return nil, fmt.Errorf("%w: %s", statefolder.ErrLost, why)
	}
	var broken []int64
	for _, r := range s.noted.Rows {
		if table, row := hashmap.SplitKey(r.Key); table == was.Number {
			broken = append(broken, row)
		}
	}
	k := s.newKeep(now)
	words, err := s.folder.Take(s.home, k.Name+wordsRole, transfer.KeptWords*8, "words of a table")
	if err != nil {
		return nil, err
	}
	s.setWords(k, words)
	if was.Tier.RowBytes != now.RowBytes || was.Tier.Capacity != now.Capacity {
		return nil, fmt.Errorf("%w: it has rows of %d bytes and a capacity of %d", statefolder.ErrLost, was.Tier.RowBytes, was.Tier.Capacity)
	}
	tier, err := transfer.Take(s.home, k, was.Tier, broken)
	if err != nil {
		return nil, err
	}
	return &read.Table{Name: l.table.name, DType: l.table.dtype, Tier: tier}, nil
}

// keep returns what has a table that is to be loaded outlive the process, nil if it does not.
func (s *state) keep(l loading) (*transfer.Keep, error) {
	if s == nil {
		return nil, nil
	}
	t := s.table(l)
	k := s.newKeep(t)
	words, err := s.folder.Alloc(s.home, k.Name+wordsRole, transfer.KeptWords*8, "words of a table")
	if err != nil {
		return nil, err
	}
	s.setWords(k, words)
	s.tables = append(s.tables, t)
	return k, nil
}

// anyTaken says whether any table was taken over.
func (s *state) anyTaken() bool { return s != nil && len(s.numbers) > 0 }

// overlayBytes returns how long the overlay has to be at least: it gets the rows of the one before.
func (s *state) overlayBytes() int64 {
	if !s.anyTaken() {
		return 0
	}
	return s.noted.OverlayBytes
}

// overlayRows returns how many rows those are.
func (s *state) overlayRows() int64 {
	if !s.anyTaken() {
		return 0
	}
	return int64(len(s.noted.Rows))
}

// settle is called when all tables are loaded, before slabs are allocated.
func (s *state) settle() {
	if s != nil && !s.anyTaken() {
		s.folder.Drop()
	}
}

// takeOver puts the rows of the overlay before in the overlay, and makes this cache what the next owner finds.
func (c *Cache) takeOver() error {
	s := c.state
	if s == nil {
		return nil
	}
	var rows []place.NotedRow
	dropped := 0
	if s.anyTaken() {
		for _, r := range s.noted.Rows {
			table, row := hashmap.SplitKey(r.Key)
			now, ok := s.numbers[table]
			if !ok || row >= c.set.Tables[now].Tier.Rows() { // of a table that is loaded anew, or of an Update that has not returned
				dropped++
				continue
			}
			r.Key = hashmap.Key(now, row)
			rows = append(rows, r)
		}
	}
	if err := c.writer.TakeOver(rows, func() error { return s.folder.Begin(s.data) }); err != nil {
		return fmt.Errorf("cache: State: %w", err)
	}
	s.noted.Free(s.home)
	if s.anyTaken() {
		c.writer.AdmitLater(s.cachedKeys)
		s.log(slog.LevelInfo, "state is taken over", slog.Duration("took", time.Since(s.begun)), slog.Int("tables", len(s.numbers)), slog.Int("of", len(c.set.Tables)),
			slog.Int("updated", len(rows)), slog.Int("dropped", dropped))
	}
	return nil
}

// data describes the tables for the next owner.
func (s *state) data() (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.Tier = t.keep.Tier()
	}
	return json.Marshal(stateData{stateVersion, s.tables})
}

// cachedKeys returns the keys of the rows that the owner before had cached, or else those of the snapshot. free gives their memory back.
func (s *state) cachedKeys() (keys []uint64, free func()) {
	if s.cached.Size() == 0 {
		return s.cache.readSnapshot(), func() {}
	}
	layout := hashmap.Layout{Buckets: uint32(s.cached.Size() / hashmap.BucketBytes)}
	all, memory := numa.Make[uint64](layout.Slots())
	keys = all[:0]
	for key, l := range hashmap.View(s.cached.Bytes(), layout).All() {
		table, row := hashmap.SplitKey(key)
		now, ok := s.numbers[table]
		if ok && l.Valid() && row < s.cache.set.Tables[now].Tier.Rows() {
			keys = append(keys, hashmap.Key(now, row))
		}
	}
	s.home.Free(s.cached)
	s.cached = device.Buffer{}
	return keys, func() { memory.Free() }
}

// free gives memory back. The folder keeps what is in it.
func (s *state) free() {
	if s == nil {
		return
	}
	s.noted.Free(s.home)
	s.home.Free(s.cached)
	for _, b := range s.words {
		s.home.Free(b)
	}
}
