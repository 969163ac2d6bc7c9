package transfer

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/statefolder"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// Keep has the memory of a tier outlive the process. A row that is in the overlay may be half written in the tier when the process is killed, and every other row is whole.
type Keep struct {
	Folder *statefolder.Folder
	// Name is what the roles of the tier's memory in the folder begin with. It names the table.
	Name string
	// Words are KeptWords words that outlive the process, too: what writes and growth change.
	Words []int64

	mu   sync.Mutex
	tier KeptTier
}

// KeptWords is the number of words of Keep.Words: the number of rows, and RawRows, StoredBytes, SlotBytes, EqualRows and the bytes of shared slots. The number of rows is exact; the
// others may lack the change during which the process was killed.
const KeptWords = 8

// What the roles of a tier's memory end with.
const (
	rowsRole   = ".rows"
	indexRole  = ".index"
	bitsRole   = ".bits"
	groupsRole = ".groups"
)

// KeptTier is what has to be known of a tier, besides its memory and its words, to take it over.
type KeptTier struct {
	Mode     Mode             `json:"mode"`
	RowBytes int              `json:"row_bytes"`
	Loaded   int64            `json:"loaded"` // rows when it was loaded
	Capacity int64            `json:"capacity"`
	Ahead    int              `json:"ahead"`
	Common   int              `json:"common"`
	Codec    string           `json:"codec"` // "" if all rows are raw
	Metadata []byte           `json:"metadata,omitempty"`
	Choice   *registry.Choice `json:"choice,omitempty"`
	Trained  Totals           `json:"trained"`
	// Bytes of the memory of rows, and of the record of equal rows, 0 if there is none; and how many groups that has.
	Bytes       int64    `json:"bytes"`
	GroupsBytes int64    `json:"groups_bytes,omitempty"`
	Groups      int64    `json:"groups,omitempty"`
	GroupedSum  uint32   `json:"grouped_sum,omitempty"` // CRC-32C of the bits of rows in groups, which never change
	Sharing     *Sharing `json:"sharing,omitempty"`
	// Of a packed tier: space behind the rows, and from which row on rows share the row of zeros.
	TailFrom  int64  `json:"tail_from,omitempty"`
	TailBytes int64  `json:"tail_bytes,omitempty"`
	Owned     int64  `json:"owned,omitempty"`
	Packs     uint32 `json:"packs,omitempty"`
}

func (k *Keep) role(end string) string { return k.Name + end }

// Roles returns the roles of all memory of the tier.
func (k *Keep) Roles() []string {
	return []string{k.role(rowsRole), k.role(indexRole), k.role(bitsRole), k.role(groupsRole)}
}

func (k *Keep) abandon(end string) {
	if k != nil {
		k.Folder.Abandon(k.role(end))
	}
}

// setRows notes the number of rows.
func (k *Keep) setRows(n int64) {
	if k != nil {
		atomic.StoreInt64(&k.Words[0], n)
	}
}

// Tier describes the tier.
func (k *Keep) Tier() KeptTier {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tier
}

// set replaces the description of the tier, and returns the one before.
func (k *Keep) set(tier KeptTier) (before KeptTier) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, k.tier = k.tier, tier
	return before
}

// keepPacked makes the newest memory of a packed tier, and what says where rows lie in it, what the next owner finds. REQUIRES: t.writes is locked.
func (t *Tier) keepPacked() error {
	k := t.keep
	if k == nil {
		return nil
	}
	return k.Folder.Commit(func() func() {
		before := k.set(t.describePacked(k.Tier()))
		return func() { k.set(before) }
	}, k.role(rowsRole), k.role(indexRole))
}

// describePacked returns the description of the tier with what Repack changes.
func (t *Tier) describePacked(k KeptTier) KeptTier {
	k.Bytes, k.TailFrom, k.TailBytes, k.Owned, k.Packs = t.host.Mem.Size(), t.tailFrom, t.tail.Capacity(), t.owned, t.packs
	return k
}

// keepTotals notes the number of rows and the totals. REQUIRES: t.writes is locked, or nobody else uses the tier yet.
func (t *Tier) keepTotals() {
	if t.keep == nil {
		return
	}
	for i, n := range []int64{t.Rows(), t.total.RawRows, t.total.StoredBytes, t.total.SlotBytes, t.total.EqualRows, t.sharedBytes} {
		atomic.StoreInt64(&t.keep.Words[i], n)
	}
}

// keepGroups moves the record of equal rows to memory that outlives the process, and describes the tier.
func (t *Tier) keepGroups() error {
	k := t.keep
	if k == nil {
		return nil
	}
	tier := KeptTier{
		Mode: t.mode, RowBytes: t.rowBytes, Loaded: t.rows, Capacity: t.capacity, Ahead: t.host.Ahead, Common: t.host.Common, Choice: t.choice, Trained: t.trained,
		Bytes: t.host.Mem.Size(),
	}
	if t.codec != nil {
		metadata, err := t.codec.MarshalBinary()
		if err != nil {
			return err
		}
		tier.Codec, tier.Metadata = t.codec.Name(), metadata
	}
	if t.sharing != (Sharing{}) {
		tier.Sharing = &t.sharing
	}
	if g := t.groups; g != nil {
		tier.GroupsBytes, tier.Groups = int64(8*len(g.rows)+4*len(g.group)), int64(len(g.sizes)-1)
		var err error
		if t.groupsMem, err = k.Folder.Alloc(t.home, k.role(groupsRole), tier.GroupsBytes, "groups of equal rows"); err != nil {
			return err
		}
		before := g.rows
		rows, group := groupsIn(t.groupsMem, len(before))
		copy(rows, before)
		copy(group, g.group)
		g.rows, g.group = rows, group
		tier.GroupedSum = groupedSum(t.groupsMem, len(rows))
	}
	if t.mode == Packed {
		tier = t.describePacked(tier)
	}
	k.set(tier)
	t.keepTotals()
	return nil
}

// groupsIn returns the parts of the record of equal rows: a bit for each row as loaded, in words, and the group of each row whose bit is set.
func groupsIn(b device.Buffer, words int) (rows bitset, group []uint32) {
	at := int64(8 * words)
	return view[uint64](b.Slice(0, at)), view[uint32](b.Slice(at, b.Size()))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func groupedSum(b device.Buffer, words int) uint32 {
	return crc32.Checksum(b.Bytes()[:8*words], castagnoli)
}

// Take returns a tier of the process before as k has it, whose memory is in the folder. broken are the rows that may be half written: the caller writes them anew before anybody reads
// them. Errors wrap statefolder.ErrLost if the memory is not what k says.
func Take(d device.Device, k *Keep, tier KeptTier, broken []int64) (_ *Tier, err error) {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{statefolder.ErrLost}, a...)...)
	}
	words := k.Words
	rows := words[0]
	if tier.RowBytes < 1 || tier.Loaded < 0 || rows < tier.Loaded || rows > tier.Capacity || tier.Mode > Packed {
		return nil, bad("rows (%d) must be %d to %d, of %d bytes", rows, tier.Loaded, tier.Capacity, tier.RowBytes)
	}
	t := &Tier{mode: tier.Mode, rows: tier.Loaded, rowBytes: tier.RowBytes, home: d, capacity: tier.Capacity, choice: tier.Choice, shared: true, keep: k, trained: tier.Trained}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	t.added.Store(rows - tier.Loaded)
	k.tier = tier
	if tier.Codec != "" {
		f, err := registry.Family(tier.Codec)
		if err != nil {
			return nil, bad("%v", err)
		}
		if t.codec, err = f.Unmarshal(slices.Clone(tier.Metadata)); err != nil {
			return nil, bad("%v", err)
		}
	}
	t.total = Totals{Rows: rows, RawRows: words[1], RawBytes: rows * int64(tier.RowBytes), StoredBytes: words[2], SlotBytes: words[3], EqualRows: words[4]}
	t.sharedBytes = words[5]
	if tier.Sharing != nil {
		t.sharing = *tier.Sharing
	}
	t.host = kernels.HostRows{RowBytes: tier.RowBytes, Ahead: tier.Ahead, Common: tier.Common}
	if t.mode == InPlace {
		t.host.Stride = roundUp(int64(tier.RowBytes))
		if tier.Bytes != tier.Capacity*t.host.Stride+slab.TailSlack {
			return nil, bad("host tier (%d bytes) must hold %d rows of %d", tier.Bytes, tier.Capacity, t.host.Stride)
		}
	}
	if t.host.Mem, err = k.Folder.Take(d, k.role(rowsRole), tier.Bytes, "host tier"); err != nil {
		return nil, err
	}
	switch {
	case t.mode == Packed:
		if t.host.Index, err = k.Folder.Take(d, k.role(indexRole), tier.Capacity*8, "host tier index"); err == nil {
			err = t.takePacked(tier)
		}
	case t.codec != nil:
		if t.host.Compressed, err = k.Folder.Take(d, k.role(bitsRole), (tier.Capacity+63)/64*8, "row bits"); err == nil {
			for _, row := range broken { // its length must not be read from bytes that are half written
				if row < rows {
					view[uint64](t.host.Compressed)[row>>6] &^= 1 << (row & 63)
				}
			}
		}
	}
	if err == nil && tier.GroupsBytes > 0 {
		err = t.takeGroups(tier)
	}
	return t, err
}

// takeGroups takes over the record of equal rows.
func (t *Tier) takeGroups(tier KeptTier) (err error) {
	words := int((tier.Loaded + 63) / 64)
	if t.mode != InPlace || tier.GroupsBytes < int64(8*words) || tier.Groups < 0 || tier.Groups > tier.Loaded {
		return fmt.Errorf("%w: groups of equal rows (%d bytes)", statefolder.ErrLost, tier.GroupsBytes)
	}
	if t.groupsMem, err = t.keep.Folder.Take(t.home, t.keep.role(groupsRole), tier.GroupsBytes, "groups of equal rows"); err != nil {
		return err
	}
	g := &groups{sizes: make([]uint32, tier.Groups+1)}
	g.rows, g.group = groupsIn(t.groupsMem, words)
	if n := g.rank(); n != int64(len(g.group)) || groupedSum(t.groupsMem, words) != tier.GroupedSum {
		return fmt.Errorf("%w: groups of equal rows (%d rows) must have %d, with the checksum of the manifest", statefolder.ErrLost, n, len(g.group))
	}
	for _, id := range g.group {
		if int64(id) > tier.Groups {
			return fmt.Errorf("%w: group (%d) of equal rows must be at most %d", statefolder.ErrLost, id, tier.Groups)
		}
		if id != 0 {
			g.sizes[id]++
		}
	}
	t.groups = g
	t.shares.Store(true)
	return nil
}

// takePacked checks the index of a packed tier, and works out from it which rows share places and which space is free.
func (t *Tier) takePacked(tier KeptTier) error {
	locations, size := t.locations(), t.host.Mem.Size()-slab.TailSlack
	if tier.TailFrom < 0 || tier.TailBytes < 0 || tier.TailFrom+tier.TailBytes > size || tier.Owned < 0 || tier.Owned > tier.Capacity {
		return fmt.Errorf("%w: space behind the rows (%d bytes from %d on) must lie in %d", statefolder.ErrLost, tier.TailBytes, tier.TailFrom, size)
	}
	t.tailFrom, t.owned, t.packs = tier.TailFrom, tier.Owned, tier.Packs
	var wrong atomic.Int64
	wrong.Store(-1)
	type extent struct{ at, bytes int64 }
	var tail []extent
	var mu sync.Mutex
	places := newBitset(t.tailFrom / align) // where rows begin
	shared := newBitset(t.tailFrom / align) // where several do
	host.Workers(0).For(len(locations), packGrain, func(from, to int) {
		var found []extent
		for r := from; r < to; r++ {
			l := locations[r]
			n := int64(l.Stored(t.rowBytes))
			if !l.Valid() || l.Slab() != 0 || l.Offset()%align != 0 || n > int64(t.rowBytes) || l.Offset()+n > size || l.Compressed() && t.codec == nil {
				wrong.Store(int64(r))
				return
			}
			if t.inTail(l) {
				found = append(found, extent{l.Offset() - t.tailFrom, int64(slab.SlotBytes(int(n)))})
				continue
			}
			if at := l.Offset() / align; int64(r) < t.owned {
				if bit := uint64(1) << (at & 63); atomic.OrUint64(&places[at>>6], bit)&bit != 0 {
					shared.setShared(at)
				}
			}
		}
		mu.Lock()
		tail = append(tail, found...)
		mu.Unlock()
	})
	if r := wrong.Load(); r >= 0 {
		return fmt.Errorf("%w: place of row %d (%v) must be in the host tier", statefolder.ErrLost, r, locations[r])
	}
	slices.SortFunc(tail, func(a, b extent) int { return cmp.Compare(a.at, b.at) })
	t.tail = slab.NewAllocator(0, tier.TailBytes)
	var free []extent
	end := int64(0)
	for _, e := range append(tail, extent{tier.TailBytes, 0}) { // slots follow each other in an allocator that nothing was freed in
		if e.at < end || e.at+e.bytes > tier.TailBytes {
			return fmt.Errorf("%w: rows behind the packed ones must not overlap", statefolder.ErrLost)
		}
		if gap := e.at - end; gap > 0 {
			t.tail.Alloc(int(gap))
			free = append(free, extent{end, gap})
		}
		if e.bytes > 0 {
			t.tail.Alloc(int(e.bytes))
		}
		end = e.at + e.bytes
	}
	for _, e := range free {
		t.tail.Free(e.at, int(e.bytes))
	}
	if slices.ContainsFunc(shared, func(w uint64) bool { return w != 0 }) {
		t.several = newBitset(t.capacity)
		host.Workers(0).For(int(t.owned)/64+1, packGrain, func(from, to int) { // whole words of the set
			for r := int64(from) * 64; r < min(int64(to)*64, t.owned); r++ {
				if l := locations[r]; !t.inTail(l) && shared.has(l.Offset()/align) {
					t.several.set(r)
				}
			}
		})
		t.sharers = newSharers(host.Workers(0), t.several, locations)
	}
	t.shares.Store(len(t.sharers.rows) > 0 || t.capacity > t.owned)
	return nil
}
