package pages

import (
	"bytes"
	"context"
	"encoding/binary"
)

// patch writes the pages of a group that have updates, which are those of read, and keeps the others. It reports false, and has written nothing, if a
// page would be too long with its updates: then the group's rows are to be divided into pages anew.
func (r *rewriting) patch(ctx context.Context, g int, read readGroup, refs []updateRef) (patched bool, err error) {
	m, done := r.m, r.done
	fresh := make([][]byte, len(read.numbers))
	longest := 0
	for i, page := range read.numbers {
		from, to := r.t.index.positions(page)
		n := 0
		for n < len(refs) && refs[n].position < to {
			n++
		}
		if err := r.merge(from, read.pages[i:i+1], refs[:n]); err != nil {
			return false, err
		}
		refs = refs[n:]
		rows := len(r.group.entries)
		length := pageLength(rows, len(r.stored))
		if length > r.m.PageBytes && rows > 1 {
			r.m, r.done = m, done
			return false, nil
		}
		longest = max(longest, length)
		if fresh[i] = appendPage(nil, from, r.group.entries, r.stored, r.packer.stage); bytes.Equal(fresh[i], read.bytes[i]) {
			fresh[i] = nil
		}
	}
	x, old := &r.index, r.t.index
	x.groups = append(x.groups, old.groups[g].pageRows)
	x.longest = max(x.longest, longest, m.LongestPage) // how long kept pages are before the second stage is in none that was read
	numbers := read.numbers
	first, end := r.pagesOf(g)
	for page := first; page < end; {
		var changed []byte
		if len(numbers) > 0 && numbers[0] == page {
			changed, fresh, numbers = fresh[0], fresh[1:], numbers[1:]
		}
		number := uint32(len(x.pages))
		if changed != nil {
			r.done.ChangedPages++
			x.pages = append(x.pages, indexPage{uint32(len(changed)), binary.LittleEndian.Uint32(changed[28:])})
			x.total += int64(len(changed))
			page++
			if err := r.put(ctx, number, [][]byte{changed}); err != nil {
				return false, err
			}
			continue
		}
		upto := end
		if len(numbers) > 0 {
			upto = numbers[0]
		}
		n := max(1, int(upto)-int(page))
		for i := range n {
			p := old.pages[int(page)+i]
			x.pages = append(x.pages, p)
			x.total += int64(p.length)
		}
		if err := r.sharer.keepPages(number, page, n); err != nil {
			return false, err
		}
		page += uint32(n)
	}
	return true, ctx.Err()
}
