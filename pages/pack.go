package pages

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/slab"
)

// DefaultPageBytes is PackOptions.PageBytes if that is 0.
const DefaultPageBytes = 256 << 10

// StageAuto, as PackOptions.Stage, has the stage picked that saves most of a few groups' pages, if it saves a twentieth at least.
const StageAuto = "auto"

// Smallest, as PackOptions.Codec, has the codec and the second stage picked that take the fewest bytes of a sample, however fast they are.
const Smallest = "smallest"

// PackOptions say how to pack a table.
type PackOptions struct {
	// Name is the table's name, and DType the type of the elements. Both go to the manifest.
	Name  string
	DType dtype.Type
	// Codec is a name that registry.Train takes, or Smallest; "" means auto.
	Codec string
	// OrRaw has rows stay raw whose type or length the codec does not serve. Otherwise that is an error.
	OrRaw bool
	// PageBytes is the most bytes of a page, MinPageBytes to MaxPageBytes, 0 for DefaultPageBytes.
	PageBytes int
	// Stage is a name of Stages or StageAuto; "" means StageAuto.
	Stage string
	// Order are all row numbers in the order in which the rows are to lie in pages; nil for ascending. The source must then be a RangedSource.
	// It must not change.
	Order []uint32
	// Scratch makes memory for the rows' positions, 4 bytes a row, if there is an order. nil: ordinary memory. It is in use until Pack returns.
	Scratch func(bytes int64) ([]byte, error)
	// Seed seeds the choice of the rows that the codec is trained on.
	Seed uint64
	// Workers is the number of goroutines that pack, 0 for as many as there are processors, at most 8. Each takes some 64 MiB.
	Workers int
	// SourceKey tells one source from another: what an interrupted run has written is gone on with only if its source had the same key. If
	// it is empty, nothing is gone on with.
	SourceKey string
	// Chosen, if not nil, is told why Codec auto picked the codec that it did, unless an interrupted run goes on with its own.
	Chosen func(registry.Choice)
	// Progress, if not nil, is told by one goroutine how many rows have been packed; the first call is for those of an earlier run.
	Progress func(rows int64)
}

// maxWorkers bounds the memory of packing.
const maxWorkers = 8

// Pack makes the next generation of a table from the rows of a source and commits it. open is called once, or twice if the source cannot be
// read in any order: then the first pass takes the sample that the codec is trained on. Memory does not depend on the table's length, but
// for 8 bytes a page, and, if there is an order, an eighth of a byte a row and what Scratch makes. Equal sources and options give equal pages.
//
// If Pack fails, it calls w.Abort, and readers see what they saw before. FileWriter keeps what has been written, and the next Pack with
// the same SourceKey and options goes on from there.
func Pack(ctx context.Context, open func() (Source, error), w Writer, o PackOptions) (_ *Manifest, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Abort())
		}
	}()
	src, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { src.Close() }()
	p := &packing{o: o, w: w, rows: int64(src.Rows()), rowBytes: src.RowBytes()}
	if o.SourceKey != "" {
		p.keep, _ = w.(resumer)
	}
	if err := p.prepare(src); err != nil {
		return nil, err
	}
	resumed, err := p.resume()
	if err != nil {
		return nil, err
	}
	if !resumed {
		if src, err = p.train(src, open); err != nil {
			return nil, err
		}
		if err := p.pickStage(src); err != nil {
			return nil, err
		}
		if p.keep != nil {
			if err := p.keep.begin(p.resumable()); err != nil {
				return nil, err
			}
		}
	}
	if err := p.run(ctx, src); err != nil {
		return nil, err
	}
	return p.commit(ctx)
}

// packing is one call of Pack.
type packing struct {
	o        PackOptions
	w        Writer
	keep     resumer // w, if what it has written is kept when it is interrupted
	rows     int64
	rowBytes int
	group    int // rows of a group

	codecName string
	codec     codec.Codec
	metadata  []byte
	stage     Stage
	sample    []byte // of a source that cannot be read in any order

	index       indexBuilder
	nextGroup   int64 // the first that is not written
	stored, raw int64
}

// prepare checks the options and fills in defaults.
func (p *packing) prepare(src Source) error {
	o := &p.o
	if o.Codec == "" {
		o.Codec = registry.Auto
	}
	if o.Stage == "" {
		o.Stage = StageAuto
	}
	if o.PageBytes == 0 {
		o.PageBytes = DefaultPageBytes
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	o.Workers = min(o.Workers, maxWorkers)
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	if o.Scratch == nil {
		o.Scratch = func(bytes int64) ([]byte, error) { return make([]byte, bytes), nil }
	}
	if o.Codec != Smallest {
		if err := registry.Check(o.Codec); err != nil {
			return err
		}
	}
	if o.Stage != StageAuto {
		if _, err := parseStage(o.Stage); err != nil {
			return fmt.Errorf("%w, or %s", err, StageAuto)
		}
	}
	if o.PageBytes < MinPageBytes || o.PageBytes > MaxPageBytes {
		return fmt.Errorf("pages: page (%d bytes) must have %d to %d", o.PageBytes, MinPageBytes, MaxPageBytes)
	}
	if p.rowBytes < 1 || p.rowBytes > slab.MaxRowBytes {
		return fmt.Errorf("pages: row (%d bytes) must have 1 to %d", p.rowBytes, slab.MaxRowBytes)
	}
	if o.Order != nil {
		if _, ok := src.(RangedSource); !ok {
			return errors.New("pages: the source must be one whose rows can be read in any order, for the table to be ordered: a file that is neither compressed nor in Fortran order")
		}
		if err := checkOrder(o.Order, p.rows); err != nil {
			return err
		}
	}
	p.group = groupRowsFor(p.rowBytes)
	return nil
}

// groups returns the number of groups of the table.
func (p *packing) groups() int64 { return (p.rows + int64(p.group) - 1) / int64(p.group) }

// run packs the groups that are left and writes them in order.
func (p *packing) run(ctx context.Context, src Source) error {
	groups := p.groups()
	p.o.Progress(min(p.rows, p.nextGroup*int64(p.group)))
	if p.nextGroup == groups {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r, _ := src.(RangedSource)
	if r == nil {
		if err := p.skip(ctx, src); err != nil {
			return err
		}
	}
	type result struct {
		number int64
		g      *packedGroup
		err    error
	}
	workers := int(min(int64(p.o.Workers), groups-p.nextGroup))
	free := make(chan *packedGroup, workers+2)
	for range cap(free) {
		free <- new(packedGroup)
	}
	results := make(chan result, cap(free))
	var mu sync.Mutex // guards next, and reading in order
	next := p.nextGroup
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for range workers {
		stage, err := newStager(p.stage, p.o.DType)
		if err != nil {
			return err
		}
		wg.Go(func() {
			packer := p.packerWith(p.codec, stage)
			buf := make([]byte, min(p.rows, int64(p.group))*int64(p.rowBytes))
			for {
				var g *packedGroup
				select {
				case g = <-free:
				case <-ctx.Done():
					return
				}
				mu.Lock()
				number := next
				if number == groups {
					mu.Unlock()
					return
				}
				next++
				first := number * int64(p.group)
				rows := buf[:min(int64(p.group), p.rows-first)*int64(p.rowBytes)]
				var err error
				if r == nil {
					err = p.readGroup(nil, src, first, rows)
				}
				mu.Unlock()
				if r != nil {
					err = p.readGroup(r, src, first, rows)
				}
				if err == nil {
					err = packer.pack(g, first, rows)
				}
				results <- result{number, g, err} // never blocks: it has room for all groups there are
				if err != nil {
					return
				}
			}
		})
	}
	waiting := map[int64]*packedGroup{}
	for p.nextGroup < groups {
		select {
		case res := <-results:
			if res.err != nil {
				return res.err
			}
			waiting[res.number] = res.g
		case <-ctx.Done():
			return ctx.Err()
		}
		for g := waiting[p.nextGroup]; g != nil; g = waiting[p.nextGroup] {
			delete(waiting, p.nextGroup)
			if err := p.write(ctx, g); err != nil {
				return err
			}
			free <- g
		}
	}
	return nil
}

// write writes the next group.
func (p *packing) write(ctx context.Context, g *packedGroup) error {
	first := len(p.index.pages)
	if int64(first)+int64(len(g.pages)) >= 1<<32 {
		return fmt.Errorf("pages: pages must be less than %d: take larger ones than %d bytes", int64(1)<<32, p.o.PageBytes)
	}
	if err := p.w.WritePages(ctx, uint32(first), g.pages); err != nil {
		return err
	}
	p.index.add(g)
	p.stored += g.stored
	p.raw += g.raw
	if p.keep != nil {
		if err := p.keep.wrote(g, p.index.pages[first:]); err != nil {
			return err
		}
	}
	p.nextGroup++
	p.o.Progress(min(p.rows, p.nextGroup*int64(p.group)))
	return nil
}

// commit commits the generation.
func (p *packing) commit(ctx context.Context) (*Manifest, error) {
	order, err := positions(p.o.Order, p.o.Scratch)
	if err != nil {
		return nil, err
	}
	parts := Parts{PartIndex: p.index.encode(), PartMetadata: p.metadata, PartOrder: order}
	m := &Manifest{
		Name: p.o.Name, Codec: p.codecName, DType: p.o.DType, Rows: p.rows, RowBytes: p.rowBytes, Generation: p.w.Generation(),
		PageBytes: p.o.PageBytes, LongestPage: p.index.longest, Pages: uint32(len(p.index.pages)), PageTotal: p.index.total,
		GroupRows: p.group, RawRows: p.raw, StoredBytes: p.stored, Stage: p.stage, Ordered: p.o.Order != nil,
	}
	for i, b := range parts {
		m.Parts[i] = sumOf(b)
	}
	if err := m.validate(); err != nil {
		return nil, err
	}
	return m, p.w.Commit(ctx, m, &parts)
}
