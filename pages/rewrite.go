package pages

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tensorcache/tensorcache/internal/directio"
)

// Updates are newer versions of rows, in the encoding of a table: those of a delta log.
type Updates interface {
	// Rows are the numbers of the rows, each once, in any order.
	Rows() []int64
	// Read returns row i of Rows as it is stored. It may lie in buf. It is called by one goroutine.
	Read(i int, buf []byte) (stored []byte, compressed bool, err error)
}

// Rewritten says what Rewrite did.
type Rewritten struct {
	// Rows were replaced, whose stored form has UpdateBytes.
	Rows, UpdateBytes int64
	// Pages were written, of Bytes together, ChangedPages of them with other contents; the others were kept where they are, if the writer can do that.
	// Bytes ÷ UpdateBytes is the write amplification.
	Pages, ChangedPages uint32
	Bytes               int64
}

// Rewrite makes the next generation of a table: its rows with updates in their places. Nothing is encoded. Into the directory of page files that the
// table is read from it writes those pages only that change, as long as less than a third of the files' bytes are of pages that have changed since
// they were written; links have the others. Otherwise it writes all, those of groups without updates as they are. It calls w.Abort if it fails. Progress, if not nil, is told how many groups are done, of all.
func Rewrite(ctx context.Context, from Store, w Writer, updates Updates, progress func(groups, of int64)) (_ *Manifest, _ Rewritten, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Abort())
		}
	}()
	t, err := OpenStores(ctx, unclosed{from})
	if err != nil {
		return nil, Rewritten{}, err
	}
	stage, err := newStager(t.manifest.Stage, t.manifest.DType)
	if err != nil {
		return nil, Rewritten{}, err
	}
	r := &rewriting{
		t: t, w: w, updates: updates, m: *t.manifest,
		packer: packer{rowBytes: t.manifest.RowBytes, pageBytes: t.manifest.PageBytes, stage: stage},
	}
	if err := r.sort(); err != nil {
		return nil, Rewritten{}, err
	}
	if s, ok := w.(sharer); ok {
		if shared, err := s.share(from, r.touched()); err != nil {
			return nil, Rewritten{}, err
		} else if shared {
			r.sharer = s
		}
	}
	if err := r.run(ctx, from, progress); err != nil {
		return nil, Rewritten{}, err
	}
	metadata, err := from.Part(ctx, PartMetadata)
	if err != nil {
		return nil, Rewritten{}, err
	}
	parts := Parts{PartIndex: r.index.encode(), PartMetadata: metadata, PartOrder: t.order}
	m := &r.m
	m.Generation, m.LongestPage, m.Pages, m.PageTotal = w.Generation(), r.index.longest, uint32(len(r.index.pages)), r.index.total
	m.Parts[PartIndex] = sumOf(parts[PartIndex])
	return m, r.done, w.Commit(ctx, m, &parts)
}

// rewriting is one call of Rewrite.
type rewriting struct {
	t       *Table
	w       Writer
	sharer  sharer // w, if it keeps pages that do not change; nil otherwise
	updates Updates
	m       Manifest // the new one
	packer  packer
	index   indexBuilder
	refs    []updateRef // ascending, of groups that are not written yet
	all     []updateRef // of all groups
	done    Rewritten
	group   packedGroup
	stored  []byte
	buf     []byte
}

// updateRef is an update that belongs at a position.
type updateRef struct {
	position int64
	i        int
}

// sort sorts the updates by position.
func (r *rewriting) sort() error {
	rows := r.updates.Rows()
	r.refs = make([]updateRef, len(rows))
	for i, row := range rows {
		if row < 0 || row >= r.m.Rows {
			return fmt.Errorf("pages: table %s: updated row (%d) must be 0 to %d", r.m.Name, row, r.m.Rows-1)
		}
		r.refs[i] = updateRef{r.t.Position(row), i}
	}
	slices.SortFunc(r.refs, func(a, b updateRef) int { return int(a.position - b.position) })
	for i := 1; i < len(r.refs); i++ {
		if r.refs[i].position == r.refs[i-1].position {
			return fmt.Errorf("pages: table %s: updated row %d must be there once only", r.m.Name, rows[r.refs[i].i])
		}
	}
	r.all = r.refs
	return nil
}

// touched returns the bytes of pages that have updates, in blocks.
func (r *rewriting) touched() (bytes int64) {
	last := int64(-1)
	for _, ref := range r.refs {
		if page, _ := r.t.index.locate(ref.position); int64(page) != last {
			last = int64(page)
			bytes += int64(directio.Blocks(r.t.index.length(page))) * block
		}
	}
	return bytes
}

// readGroup is pages of a group, as they are stored and parsed: those that have updates, if the others are kept, else all.
type readGroup struct {
	numbers []uint32
	bytes   [][]byte
	pages   []parsedPage
	err     error
}

// run writes all groups, and reads the next one meanwhile.
func (r *rewriting) run(ctx context.Context, from Store, progress func(groups, of int64)) error {
	ctx, stop := context.WithCancel(ctx)
	groups := make(chan readGroup, 1)
	defer func() {
		stop()
		for range groups { // until the reader has ended
		}
	}()
	go func() {
		defer close(groups)
		for g := range r.t.index.groups {
			read := r.read(ctx, from, r.wanted(g))
			select {
			case groups <- read:
			case <-ctx.Done():
				return
			}
			if read.err != nil {
				return
			}
		}
	}()
	n := int64(len(r.t.index.groups))
	for g := range n {
		read, ok := <-groups
		if !ok {
			return ctx.Err()
		}
		if read.err != nil {
			return read.err
		}
		if err := r.write(ctx, from, g, read); err != nil {
			return err
		}
		if progress != nil {
			progress(g+1, n)
		}
	}
	return nil
}

// pagesOf returns the first page of a group, and the one behind its last.
func (r *rewriting) pagesOf(g int) (first, end uint32) {
	x := r.t.index
	if g+1 < len(x.groups) {
		return x.groups[g].first, x.groups[g+1].first
	}
	return x.groups[g].first, r.t.manifest.Pages
}

// wanted returns the pages of a group that must be read.
func (r *rewriting) wanted(g int) (pages []uint32) {
	if r.sharer == nil {
		return r.allOf(g)
	}
	begin := int64(g) * int64(r.m.GroupRows)
	from, _ := slices.BinarySearchFunc(r.all, begin, func(u updateRef, position int64) int { return cmp.Compare(u.position, position) })
	for _, u := range r.all[from:] {
		if u.position >= begin+int64(r.m.GroupRows) {
			break
		}
		if page, _ := r.t.index.locate(u.position); len(pages) == 0 || pages[len(pages)-1] != page {
			pages = append(pages, page)
		}
	}
	return pages
}

// allOf returns the pages of a group.
func (r *rewriting) allOf(g int) (pages []uint32) {
	first, end := r.pagesOf(g)
	for page := first; page < end; page++ {
		pages = append(pages, page)
	}
	return pages
}

// read reads pages of a group.
func (r *rewriting) read(ctx context.Context, from Store, numbers []uint32) readGroup {
	x, n := r.t.index, len(numbers)
	size := r.t.manifest.BufferBytes()
	memory := directio.Aligned(n * size)
	into := make([][]byte, n)
	for i := range numbers {
		into[i] = memory[i*size:][:size]
	}
	read := readGroup{numbers: numbers, bytes: make([][]byte, n), pages: make([]parsedPage, n)}
	faults := make([]error, n)
	from.ReadPages(ctx, numbers, into, func(i int, b []byte, err error) { read.bytes[i], faults[i] = b, err })
	parallel(n, func(i int) {
		if faults[i] == nil {
			read.pages[i], _, faults[i] = x.parse(numbers[i], read.bytes[i], r.t.manifest.RowBytes, nil)
		}
	})
	for i, err := range faults {
		if err != nil {
			read.err = r.t.pageError(from, numbers[i], err)
			break
		}
	}
	return read
}

// write writes a group, with the updates that belong there.
func (r *rewriting) write(ctx context.Context, from Store, g int64, read readGroup) error {
	begin := g * int64(r.m.GroupRows)
	end := min(begin+int64(r.m.GroupRows), r.m.Rows)
	n := 0
	for n < len(r.refs) && r.refs[n].position < end {
		n++
	}
	if r.sharer != nil {
		patched, err := r.patch(ctx, int(g), read, r.refs[:n])
		if err != nil {
			return err
		}
		if patched {
			r.refs = r.refs[n:]
			return nil
		}
		if read = r.read(ctx, from, r.allOf(int(g))); read.err != nil {
			return read.err
		}
	}
	group := &r.group
	if n == 0 {
		*group = packedGroup{pageRows: int(r.t.index.groups[g].pageRows), pages: read.bytes, memory: group.memory}
		for _, b := range read.bytes {
			group.longest = max(group.longest, len(b), pageHeader+int(binary.LittleEndian.Uint32(b[20:])))
		}
	} else {
		if err := r.merge(begin, read.pages, r.refs[:n]); err != nil {
			return err
		}
		group.pageRows = r.packer.pageRows(group, len(r.stored))
		group.paginate(&r.packer, begin, r.stored)
		r.refs = r.refs[n:]
		for i, b := range group.pages {
			if i >= len(read.bytes) || !slices.Equal(b, read.bytes[i]) {
				r.done.ChangedPages++
			}
		}
	}
	first := len(r.index.pages)
	if int64(first)+int64(len(group.pages)) >= 1<<32 {
		return fmt.Errorf("pages: table %s: pages must be less than %d", r.m.Name, int64(1)<<32)
	}
	r.index.add(group)
	return r.put(ctx, uint32(first), group.pages)
}

// put writes pages and counts them.
func (r *rewriting) put(ctx context.Context, first uint32, pages [][]byte) error {
	for _, p := range pages {
		r.done.Bytes += int64(len(p))
	}
	r.done.Pages += uint32(len(pages))
	return r.w.WritePages(ctx, first, pages)
}

// merge collects the rows of a group's pages, with updates in their places, in r.stored and r.group.entries.
func (r *rewriting) merge(position int64, pages []parsedPage, refs []updateRef) error {
	r.stored, r.group.entries, r.group.pages = r.stored[:0], r.group.entries[:0], nil
	for _, p := range pages {
		for i := range p.Rows() {
			stored, compressed, err := p.Row(i)
			if err != nil {
				return err
			}
			if len(refs) > 0 && refs[0].position == position {
				was, wasRaw := int64(len(stored)), !compressed
				if stored, compressed, err = r.updates.Read(refs[0].i, r.buf); err != nil {
					return err
				}
				if n := len(stored); compressed && n >= r.m.RowBytes || !compressed && n != r.m.RowBytes || compressed && r.t.codec == nil {
					return fmt.Errorf("pages: table %s: update at position %d (%d bytes stored) is not a row of %d bytes by codec %s", r.m.Name, position, n, r.m.RowBytes, r.m.Codec)
				}
				r.done.Rows++
				r.done.UpdateBytes += int64(len(stored))
				r.m.StoredBytes += int64(len(stored)) - was
				r.m.RawRows += int64(boolByte(!compressed)) - int64(boolByte(wasRaw))
				refs = refs[1:]
			}
			entry := uint32(len(stored))
			if compressed {
				entry |= entryCompressed
			}
			r.group.entries = append(r.group.entries, entry)
			r.stored = append(r.stored, stored...)
			for len(r.stored)%rowAlign != 0 {
				r.stored = append(r.stored, 0)
			}
			position++
		}
	}
	return nil
}

// Encoding identifies how rows of the table are stored: rows in the stored form of one table are those of another only if both have the same.
// It covers name, element type, row bytes, codec and metadata.
func (m *Manifest) Encoding() (sum [sha256.Size]byte) {
	h := sha256.New()
	of := strconv.Itoa(int(m.DType))
	if m.DType.IsRow() { // whose number is this process's
		of = m.DType.String()
	}
	fmt.Fprintf(h, "%q %s %d %q %x", m.Name, of, m.RowBytes, m.Codec, m.Parts[PartMetadata].SHA256)
	h.Sum(sum[:0])
	return sum
}
