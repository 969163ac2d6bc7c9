package pages

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
)

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
	var c codec.Codec
	var err error
	if p.o.Codec == registry.Auto {
		var choice registry.Choice
		if c, choice, err = registry.Pick(sample, p.rowBytes, p.o.DType, registry.Terms{Rows: p.rows}); err == nil && p.o.Chosen != nil {
			p.o.Chosen(choice)
		}
	} else {
		c, err = registry.Train(p.o.Codec, sample, p.rowBytes, p.o.DType)
	}
	if err != nil || c == nil {
		return src, err
	}
	p.codec, p.codecName = c, c.Name()
	p.metadata, err = c.MarshalBinary()
	return src, err
}

// stageSample is how many pages' worth of rows StageAuto tries the stages on.
const stageSample = 16

// pickStage sets the stage.
func (p *packing) pickStage(src Source) error {
	if p.o.Stage != StageAuto {
		var err error
		p.stage, err = parseStage(p.o.Stage)
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
