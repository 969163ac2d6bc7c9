package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/slab"
)

// Source yields the rows of a table once, in order. If it has the method ReadFrom of RangedSource, several goroutines read it in any order.
type Source interface {
	// Rows is the number of rows, and RowBytes the length of each.
	Rows() int
	RowBytes() int
	// Read writes the next rows to dst, whose length is a whole number of rows, and returns how many it wrote. It returns io.EOF when no row
	// is left.
	Read(dst []byte) (rows int, err error)
	Close() error
}

// RangedSource is a Source whose rows can be read in any order by several goroutines at once.
type RangedSource interface {
	Source
	// ReadFrom fills dst, a whole number of rows long, with the rows from number row on, all of which there are.
	ReadFrom(row int64, dst []byte) error
}

// DefaultPageBytes is PackOptions.PageBytes if that is 0.
const DefaultPageBytes = 256 << 10

// StageAuto, as PackOptions.Stage, has the stage picked that saves most of a few groups' pages, if it saves a twentieth at least.
const StageAuto = "auto"

// PackOptions say how to pack a table.
type PackOptions struct {
	// Name is the table's name, and DType the type of the elements. Both go to the manifest.
	Name  string
	DType dtype.Type
	// Codec is a name that registry.Train takes; "" means auto.
	Codec string
	// PageBytes is the most bytes of a page, MinPageBytes to MaxPageBytes, 0 for DefaultPageBytes.
	PageBytes int
	// Stage is a name of Stages or StageAuto; "" means StageAuto.
	Stage string
	// Order are all row numbers in the order in which the rows are to lie in pages; nil for ascending. The source must then be a RangedSource.
	// It must not change.
	Order []uint32
	// Seed seeds the choice of the rows that the codec is trained on.
	Seed uint64
	// Workers is the number of goroutines that pack, 0 for as many as there are processors, at most 8. Each takes some 64 MiB.
	Workers int
	// SourceKey tells one source from another: a writer that was interrupted goes on only if its source had the same key. It may be empty.
	SourceKey string
	// Progress, if not nil, is told by one goroutine how many rows have been packed; the first call is for those of an earlier run.
	Progress func(rows int64)
}

// maxWorkers bounds the memory of packing.
const maxWorkers = 8

// Pack makes the next generation of a table from the rows of a source and commits it. open is called once, or twice if the source cannot be
// read in any order: then the first pass takes the sample that the codec is trained on. Memory does not depend on the table's length, but
// for 8 bytes a page, and 4 bytes a row if there is an order. Equal sources and options give equal pages.
//
// If Pack fails, it calls w.Abort, and readers see what they saw before. A writer that can be resumed keeps what has been written, and the
// next Pack with the same source and options goes on from there.
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
		if r, ok := w.(resumer); ok {
			if err := r.begin(p.resumable()); err != nil {
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
	if err := registry.Check(o.Codec); err != nil {
		return err
	}
	if o.Stage != StageAuto {
		if _, err := ParseStage(o.Stage); err != nil {
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

// train trains the codec. It returns a source that can be read from the first row.
func (p *packing) train(src Source, open func() (Source, error)) (Source, error) {
	p.codecName = registry.None
	_, ranged := src.(RangedSource)
	if p.rows == 0 || p.o.Codec == registry.None && (ranged || p.o.Stage != StageAuto) {
		return src, nil
	}
	numbers := codec.SampleRows(p.rows, p.rowBytes, p.o.Seed)
	sample := make([]byte, len(numbers)*p.rowBytes)
	if r, ok := src.(RangedSource); ok {
		for i, row := range numbers {
			if err := r.ReadFrom(row, sample[i*p.rowBytes:][:p.rowBytes]); err != nil {
				return src, fmt.Errorf("pages: source at row %d of %d: %w", row, p.rows, err)
			}
		}
	} else {
		if err := readSample(src, numbers, sample); err != nil {
			return src, err
		}
		p.sample = sample
		src.Close()
		again, err := open()
		if err != nil {
			return src, err
		}
		if src = again; int64(src.Rows()) != p.rows || src.RowBytes() != p.rowBytes {
			return src, errors.New("pages: the source changed while it was read")
		}
	}
	if p.o.Codec == registry.None {
		return src, nil
	}
	c, err := registry.Train(p.o.Codec, sample, p.rowBytes, p.o.DType)
	if err != nil || c == nil {
		return src, err
	}
	p.codec, p.codecName = c, c.Name()
	p.metadata, err = c.MarshalBinary()
	return src, err
}

// readSample reads all of a source and copies the given rows, which ascend, to sample.
func readSample(src Source, numbers []int64, sample []byte) error {
	rowBytes := src.RowBytes()
	part := make([]byte, max(1, 4<<20/rowBytes)*rowBytes)
	done := int64(0)
	for i := 0; i < len(numbers); {
		n, err := readSome(src, part, done)
		if err != nil {
			return err
		}
		for ; i < len(numbers) && numbers[i] < done+int64(n); i++ {
			copy(sample[i*rowBytes:][:rowBytes], part[int(numbers[i]-done)*rowBytes:])
		}
		done += int64(n)
	}
	return nil
}

// readSome reads at least one row, of the rows from number row on.
func readSome(src Source, dst []byte, row int64) (int, error) {
	rows := int64(src.Rows())
	asked := min(len(dst)/src.RowBytes(), int(rows-row))
	n, err := src.Read(dst[:asked*src.RowBytes()])
	switch {
	case n < 0 || n > asked:
		return 0, fmt.Errorf("pages: source returned rows (%d) must be 0 to the %d asked for", n, asked)
	case n > 0 && (err == nil || errors.Is(err, io.EOF)):
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		return 0, fmt.Errorf("pages: source ended after %d of %d rows", row, rows)
	}
	return 0, fmt.Errorf("pages: source at row %d of %d: %w", row, rows, err)
}

// stageSample is how many pages' worth of rows StageAuto tries the stages on.
const stageSample = 16

// pickStage sets the stage.
func (p *packing) pickStage(src Source) error {
	if p.o.Stage != StageAuto {
		var err error
		p.stage, err = ParseStage(p.o.Stage)
		return err
	}
	want := min(p.rows, int64(max(1, min(stageSample*p.o.PageBytes/p.rowBytes, p.group))))
	var rows []byte
	if r, ok := src.(RangedSource); ok {
		// Rows in the middle of the table: tables often begin with rows of zeros.
		rows = make([]byte, want*int64(p.rowBytes))
		if err := p.readGroup(r, nil, (p.rows-want)/2, rows); err != nil {
			return err
		}
	} else {
		rows = p.sample[:min(int64(len(p.sample)), want*int64(p.rowBytes))]
	}
	if len(rows) == 0 {
		return nil
	}
	best := int64(0)
	for s := StageNone; s.valid(); s++ {
		stage, err := newStager(s)
		if err != nil {
			return err
		}
		var g packedGroup
		if err := p.packerWith(stage).pack(&g, 0, rows); err != nil {
			return err
		}
		total := int64(0)
		for _, b := range g.pages {
			total += int64(len(b))
		}
		// zstd takes several times as long to expand as lz4: it must save a twentieth more.
		if s == StageNone || total <= best-best/stageSaving {
			best, p.stage = total, s
		}
	}
	return nil
}

func (p *packing) packerWith(s *stager) *packer {
	return &packer{codec: p.codec, rowBytes: p.rowBytes, pageBytes: p.o.PageBytes, stage: s}
}

// readGroup fills rows with those at positions from first on. A source without ReadFrom is read on; its reads must come in order.
func (p *packing) readGroup(r RangedSource, src Source, first int64, rows []byte) error {
	switch {
	case p.o.Order != nil:
		order := p.o.Order[first:][:len(rows)/p.rowBytes]
		for len(order) > 0 {
			n := 1 // neighbours are read at once
			for n < len(order) && order[n] == order[0]+uint32(n) {
				n++
			}
			if err := r.ReadFrom(int64(order[0]), rows[:n*p.rowBytes]); err != nil {
				return fmt.Errorf("pages: source at row %d of %d: %w", order[0], p.rows, err)
			}
			order, rows = order[n:], rows[n*p.rowBytes:]
		}
	case r != nil:
		if err := r.ReadFrom(first, rows); err != nil {
			return fmt.Errorf("pages: source at rows from %d of %d: %w", first, p.rows, err)
		}
	default:
		for len(rows) > 0 {
			n, err := readSome(src, rows, first)
			if err != nil {
				return err
			}
			first += int64(n)
			rows = rows[n*p.rowBytes:]
		}
	}
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
		stage, err := newStager(p.stage)
		if err != nil {
			return err
		}
		wg.Go(func() {
			packer := p.packerWith(stage)
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

// skip reads past the rows that an earlier run has packed.
func (p *packing) skip(ctx context.Context, src Source) error {
	part := make([]byte, max(1, 4<<20/p.rowBytes)*p.rowBytes)
	for done, want := int64(0), p.nextGroup*int64(p.group); done < want; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := readSome(src, part[:min(int64(len(part)), (want-done)*int64(p.rowBytes))], done)
		if err != nil {
			return err
		}
		done += int64(n)
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
	if r, ok := p.w.(resumer); ok {
		if err := r.wrote(g, p.index.pages[first:]); err != nil {
			return err
		}
	}
	p.nextGroup++
	p.o.Progress(min(p.rows, p.nextGroup*int64(p.group)))
	return nil
}

// commit commits the generation.
func (p *packing) commit(ctx context.Context) (*Manifest, error) {
	parts := Parts{PartIndex: p.index.encode(), PartMetadata: p.metadata, PartOrder: positions(p.o.Order)}
	m := &Manifest{
		Name: p.o.Name, Codec: p.codecName, DType: p.o.DType, Rows: p.rows, RowBytes: p.rowBytes, Generation: p.w.Generation(),
		PageBytes: p.o.PageBytes, LongestPage: p.index.longest, Pages: uint32(len(p.index.pages)), PageTotal: p.index.total,
		GroupRows: p.group, RawRows: p.raw, StoredBytes: p.stored, Stage: p.stage, Ordered: p.o.Order != nil,
	}
	for i, b := range parts {
		m.Parts[i] = SumOf(b)
	}
	if err := m.validate(); err != nil {
		return nil, err
	}
	return m, p.w.Commit(ctx, m, &parts)
}
