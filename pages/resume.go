package pages

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/codec/registry"
)

// resumer is a Writer that keeps what an interrupted Pack has written.
type resumer interface {
	Writer
	// resume returns how far an earlier run came, nil if there was none with this key.
	resume(key [sha256.Size]byte) (*resumable, error)
	// begin starts anew.
	begin(r *resumable) error
	// wrote says that a group's pages have been written.
	wrote(g *packedGroup, pages []indexPage) error
}

// resumable is what a run that goes on must know of the earlier one.
type resumable struct {
	key      [sha256.Size]byte
	codec    string
	stage    Stage
	metadata []byte

	groups      []uint32 // rows of a page of each group that was written
	pages       []indexPage
	stored, raw int64
	longest     int
}

// key tells whether an earlier run packed the same: it covers all that pages depend on.
func (p *packing) key() (sum [sha256.Size]byte) {
	h := sha256.New()
	o := &p.o
	fmt.Fprintf(h, "%q %q %v %q %d %q %d %d %d %t", o.Name, o.SourceKey, o.DType, o.Codec, o.PageBytes, o.Stage, o.Seed, p.rows, p.rowBytes, o.Order != nil)
	var b []byte
	for part := range slices.Chunk(o.Order, 1<<16) {
		b = b[:0]
		for _, row := range part {
			b = binary.LittleEndian.AppendUint32(b, row)
		}
		h.Write(b)
	}
	h.Sum(sum[:0])
	return sum
}

func (p *packing) resumable() *resumable {
	return &resumable{key: p.key(), codec: p.codecName, stage: p.stage, metadata: p.metadata}
}

// resume takes over what an earlier run has written, if there is any.
func (p *packing) resume() (bool, error) {
	if p.keep == nil {
		return false, nil
	}
	r, err := p.keep.resume(p.key())
	if r == nil || err != nil {
		return false, err
	}
	if r.codec != registry.None {
		m := Manifest{Name: p.o.Name, Codec: r.codec, RowBytes: p.rowBytes}
		if p.codec, err = m.codec(r.metadata); err != nil {
			return false, err
		}
	}
	p.codecName, p.metadata, p.stage = r.codec, r.metadata, r.stage
	p.index = indexBuilder{groups: r.groups, pages: r.pages, longest: r.longest}
	for _, page := range r.pages {
		p.index.total += int64(page.length)
	}
	p.nextGroup, p.stored, p.raw = int64(len(r.groups)), r.stored, r.raw
	return true, nil
}
