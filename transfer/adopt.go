package transfer

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

// CheckAdoptable returns an error unless memory can become a tier of rows of the given length. The memory must be
// outside the Go heap, writable, not of a file, and begin at a page. Rows must be whole 4-byte words.
func CheckAdoptable(mem []byte, rowBytes int) error {
	if rowBytes%align != 0 {
		return fmt.Errorf("transfer: row of adopted memory (%d bytes) must be a multiple of %d bytes", rowBytes, align)
	}
	if past := addressOf(mem) % uintptr(os.Getpagesize()); past != 0 {
		return fmt.Errorf("transfer: adopted memory (%d bytes behind the start of a page) must begin at a page of %d bytes", past, os.Getpagesize())
	}
	return numa.Adoptable(mem)
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// adopted are the ranges of memory that tiers of this process have adopted.
var adopted struct {
	sync.Mutex
	ranges [][]byte
}

// claim adds memory to the adopted ranges. It returns an error if a part of it has been adopted.
func claim(mem []byte) error {
	adopted.Lock()
	defer adopted.Unlock()
	start, end := addressOf(mem), addressOf(mem)+uintptr(len(mem))
	for _, r := range adopted.ranges {
		if from := addressOf(r); start < from+uintptr(len(r)) && from < end {
			return fmt.Errorf("transfer: adopted memory (%d bytes) must not overlap %d bytes that a table has adopted", len(mem), len(r))
		}
	}
	adopted.ranges = append(adopted.ranges, mem)
	return nil
}

// unclaim undoes claim.
func unclaim(mem []byte) {
	adopted.Lock()
	defer adopted.Unlock()
	for i, r := range adopted.ranges {
		if addressOf(r) == addressOf(mem) {
			adopted.ranges = append(adopted.ranges[:i], adopted.ranges[i+1:]...)
			return
		}
	}
}

var errNoAdopter = errors.New("transfer: the backend cannot adopt memory")

// adopt makes mem, which holds the rows back to back, the memory of the tier.
func (t *Tier) adopt(mem []byte, codecName string) (device.Buffer, error) {
	on, ok := t.home.(device.HostAdopter)
	switch {
	case !ok:
		return device.Buffer{}, errNoAdopter
	case t.mode != InPlace:
		return device.Buffer{}, fmt.Errorf("transfer: layout of adopted memory (%s) must be %s", t.mode, InPlace)
	case t.capacity > t.rows:
		return device.Buffer{}, fmt.Errorf("transfer: capacity of adopted memory (%d rows) must be its %d rows", t.capacity, t.rows)
	}
	if f, err := registry.Family(codecName); err == nil && f.Lossy {
		return device.Buffer{}, fmt.Errorf("transfer: codec of adopted memory (%s) must be lossless", codecName)
	}
	if err := CheckAdoptable(mem, t.rowBytes); err != nil {
		return device.Buffer{}, err
	}
	if err := claim(mem); err != nil {
		return device.Buffer{}, err
	}
	b, err := adoptPages(on, mem)
	if err != nil {
		unclaim(mem)
		return device.Buffer{}, err
	}
	t.adopted, t.nodes = mem, nil
	return b, nil
}

// adoptPages adopts mem up to the end of its last page. Kernels read whole sectors of 32 bytes, and the last one may
// end behind mem. If the page's rest cannot be locked, because mem already is locked and the rest is not, only mem is
// adopted.
func adoptPages(on device.HostAdopter, mem []byte) (device.Buffer, error) {
	const what = "host tier"
	page := os.Getpagesize()
	pages := unsafe.Slice(unsafe.SliceData(mem), (len(mem)+page-1)/page*page)
	if b, err := on.AdoptHost(pages, what); err == nil {
		return device.MappedBuffer(mem[:len(mem):len(mem)], b.Addr()), nil
	}
	return on.AdoptHost(mem, what)
}

// Adopted reports whether the tier's memory is the caller's.
func (t *Tier) Adopted() bool { return t.adopted != nil }

// Reaches returns an error if a device cannot address the tier's adopted memory.
func (t *Tier) Reaches(d device.Device) error {
	on, ok := d.(device.HostAdopter)
	if !ok {
		return errNoAdopter
	}
	return on.Reaches(t.host.Mem)
}

// Restore writes the rows uncompressed to their places. REQUIRES: no batch reads them any more.
func (t *Tier) Restore() error {
	t.writes.Lock()
	defer t.writes.Unlock()
	words := view[uint64](t.host.Compressed)
	if len(words) == 0 || t.codec == nil {
		return nil
	}
	var mu sync.Mutex
	var first error
	inBackground(func() {
		host.Workers(0).For(len(words), restoreGrain, func(from, to int) {
			row := make([]byte, t.rowBytes)
			for w := from; w < to; w++ {
				for bit := range int64(64) {
					if words[w]>>bit&1 == 0 {
						continue
					}
					at := t.host.Mem.Bytes()[(int64(w)*64+bit)*t.host.Stride:][:t.rowBytes]
					if _, err := t.codec.Decode(row, at); err != nil {
						mu.Lock()
						if first == nil {
							first = fmt.Errorf("transfer: row %d: %w", int64(w)*64+bit, err)
						}
						mu.Unlock()
						continue
					}
					copy(at, row)
				}
				words[w] = 0
			}
		})
	}).Wait()
	return first
}

// restoreGrain is how many words of row bits a goroutine restores at a time.
const restoreGrain = 16

// lacksTail reports whether a row of adopted memory must stay raw. A decoder may read up to slab.TailSlack bytes
// behind the row's n stored bytes, and the memory may end there. It can be read up to the end of its last page. Other
// tiers have slab.TailSlack bytes behind their last row.
func (t *Tier) lacksTail(row int64, n int) bool {
	if t.adopted == nil {
		return false
	}
	page := int64(os.Getpagesize())
	return row*t.host.Stride+int64(n)+slab.TailSlack > (t.host.Mem.Size()+page-1)/page*page
}

// restoreTail restores the last rows of adopted memory, which must stay raw.
func (t *Tier) restoreTail() error {
	words, plain := view[uint64](t.host.Compressed), make([]byte, t.rowBytes)
	for row := t.rows - 1; row >= 0 && t.lacksTail(row, t.rowBytes); row-- {
		stored, compressed, err := t.Stored(row)
		if err != nil {
			return err
		}
		if !compressed || !t.lacksTail(row, len(stored)) {
			continue
		}
		n := len(stored)
		if _, err := t.codec.Decode(plain, stored); err != nil {
			return fmt.Errorf("transfer: row %d: %w", row, err)
		}
		copy(t.host.Mem.Bytes()[row*t.host.Stride:], plain)
		words[row>>6] &^= 1 << (row & 63)
		t.total.RawRows++
		t.total.StoredBytes += int64(t.rowBytes - n)
		t.total.SlotBytes += int64(slab.SlotBytes(t.rowBytes) - slab.SlotBytes(n))
	}
	return nil
}

// returns is page-locked memory through which a piece that a device has encoded returns to adopted memory. The rows
// and their bits change in the tier only when the whole piece and its bits have arrived. So if the device fails
// before that, the rows are still as they were.
type returns struct {
	rows, bits  device.Buffer
	from, count int64
}

// returnMemory allocates n returns for pieces of the given rows. free frees their memory.
func (t *Tier) returnMemory(n int, piece int64) (all []returns, free func(), err error) {
	bytes := (piece*t.host.Stride + 7) &^ 7
	bits := (piece/64 + 2) * 8
	mem, err := t.home.AllocHost(int64(n)*(bytes+bits), "loading")
	if err != nil {
		return nil, nil, err
	}
	for i := range int64(n) {
		at := i * (bytes + bits)
		all = append(all, returns{rows: mem.Slice(at, at+piece*t.host.Stride), bits: mem.Slice(at+bytes, at+bytes+bits)})
	}
	return all, func() { t.home.Free(mem) }, nil
}

// words returns the words of the row bits that cover the rows: the number of the first word, and how many.
func (r *returns) words() (first, n int64) { return r.from / 64, (r.from+r.count+63)/64 - r.from/64 }

// put writes the piece's compressed rows to the tier.
func (t *Tier) put(r *returns) {
	first, n := r.words()
	of := view[uint64](r.bits)[:n]
	to, from := t.host.Mem.Bytes(), r.rows.Bytes()
	host.Workers(0).For(int(r.count), max(1, (1<<20)/int(t.host.Stride)), func(begin, end int) {
		for i := int64(begin); i < int64(end); i++ {
			if row := r.from + i; of[row/64-first]>>(row&63)&1 != 0 {
				copy(to[row*t.host.Stride:][:t.rowBytes], from[i*t.host.Stride:])
			}
		}
	})
	words := view[uint64](t.host.Compressed)
	for i, word := range of {
		mine := ^uint64(0)
		if i == 0 {
			mine <<= r.from & 63
		}
		if past := (first+int64(i)+1)*64 - (r.from + r.count); past > 0 {
			mine &= ^uint64(0) >> past
		}
		words[first+int64(i)] |= word & mine
	}
}
