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
	switch p.o.Codec {
	case registry.Auto:
		var choice registry.Choice
		if c, choice, err = registry.Pick(sample, p.rowBytes, p.o.DType, registry.Terms{Rows: p.rows}); err == nil && p.o.Chosen != nil {
			p.o.Chosen(choice)
		}
	case Smallest:
		c, _, err = registry.Smallest(sample, p.rowBytes, p.o.DType)
	default:
		if c, err = registry.Train(p.o.Codec, sample, p.rowBytes, p.o.DType); p.o.OrRaw && errors.Is(err, codec.ErrDType) {
			c, err = nil, nil
		}
	}
	if err != nil || c == nil {
		return src, err
	}
	p.codec, p.codecName = c, c.Name()
	p.metadata, err = c.MarshalBinary()
	return src, err
}

// smallestSaving is the share of the bytes, one in so many, that a stage must save for Smallest to take it.
const smallestSaving = 200

// aloneSaving is the share of the rows, one in so many, that the second stage must save more than codec and stage together for Smallest to leave the rows raw.
const aloneSaving = 150

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
		// Rows in the middle of the table, as tables often begin with rows of zeros; for Smallest from several places, as what is packed so consists of many arrays.
		rows = make([]byte, want*int64(p.rowBytes))
		places := int64(1)
		if p.o.Codec == Smallest {
			places = max(1, min(stageSample, want*int64(p.rowBytes)/int64(p.o.PageBytes)))
		}
		for i := range places {
			from, to := i*want/places, (i+1)*want/places
			begin := (2*i+1)*p.rows/(2*places) - (to-from)/2
			if err := p.readGroup(r, nil, max(0, min(begin, p.rows-(to-from))), rows[from*int64(p.rowBytes):to*int64(p.rowBytes)]); err != nil {
				return err
			}
		}
	} else {
		rows = p.sample[:min(int64(len(p.sample)), want*int64(p.rowBytes))]
	}
	if len(rows) == 0 {
		return nil
	}
	best, stage, err := p.bestStage(rows, p.codec)
	if err != nil {
		return err
	}
	p.stage = stage
	if p.o.Codec != Smallest || p.codec == nil {
		return nil
	}
	raw, stage, err := p.bestStage(rows, nil)
	// The second stage alone, which no GPU undoes, must save something for that.
	if err == nil && raw < best-int64(len(rows)/aloneSaving) {
		p.codec, p.codecName, p.metadata, p.stage = nil, registry.None, nil, stage
	}
	return err
}

// bestStage returns the stage that is best for rows by a codec, and the bytes of their pages.
func (p *packing) bestStage(rows []byte, by codec.Codec) (best int64, picked Stage, err error) {
	for s := StageNone; s.valid(); s++ {
		stage, err := newStager(s, p.o.DType)
		if err != nil {
			return 0, 0, err
		}
		var g packedGroup
		if err := p.packerWith(by, stage).pack(&g, 0, rows); err != nil {
			return 0, 0, err
		}
		total := int64(0)
		for _, b := range g.pages {
			total += int64(len(b))
		}
		// Where speed counts, a stage that takes several times as long to expand must save a twentieth more.
		least := best - best/stageSaving
		if p.o.Codec == Smallest {
			least = best - best/smallestSaving
		}
		if s == StageNone || total <= least {
			best, picked = total, s
		}
	}
	return best, picked, nil
}

func (p *packing) packerWith(by codec.Codec, s *stager) *packer {
	return &packer{codec: by, rowBytes: p.rowBytes, pageBytes: p.o.PageBytes, stage: s}
}
