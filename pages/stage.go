package pages

import (
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/directio"
)

// Stage is a second stage of compression: of pages as a whole, after the codec of the rows.
type Stage uint8

// The second stages.
const (
	StageNone Stage = iota
	StageZstd
	StageLZ4
	StagePlanes
)

// Stages are the names that parseStage takes.
var Stages = []string{"none", "zstd", "lz4", "planes"}

func (s Stage) valid() bool { return int(s) < len(Stages) }

// String returns the name of the stage.
func (s Stage) String() string {
	if !s.valid() {
		return fmt.Sprintf("stage %d", uint8(s))
	}
	return Stages[s]
}

// parseStage returns the stage of that name.
func parseStage(name string) (Stage, error) {
	for i, s := range Stages {
		if s == name {
			return Stage(i), nil
		}
	}
	return 0, fmt.Errorf("pages: stage (%q) must be one of %s", name, strings.Join(Stages, ", "))
}

// A page goes through the second stage if that makes it shorter by a twentieth at least, and by a block: files hold pages in whole blocks.
const stageSaving = 20

// stager compresses pages. It is not safe for concurrent use.
type stager struct {
	stage Stage
	zstd  *zstd.Encoder
	lz4   lz4.Compressor
	plane planes
	buf   []byte
}

// newStager returns nil for StageNone. of is the type of the elements.
func newStager(s Stage, of dtype.Type) (*stager, error) {
	c := &stager{stage: s}
	switch s {
	case StageNone:
		return nil, nil
	case StageZstd, StagePlanes:
		var err error
		c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(MaxPageBytes))
		c.plane.zstd = c.zstd
		c.plane.element, c.plane.turned = planesOf(of)
		return c, err
	}
	return c, nil
}

// compress replaces b[from:] by its compressed form if that saves enough, and says what it did.
func (c *stager) compress(b []byte, from int) ([]byte, Stage) {
	body := b[from:]
	switch c.stage {
	case StageZstd:
		c.buf = c.zstd.EncodeAll(body, c.buf[:0])
	case StageLZ4:
		if bound := lz4.CompressBlockBound(len(body)); cap(c.buf) < bound {
			c.buf = make([]byte, bound)
		}
		n, err := c.lz4.CompressBlock(body, c.buf[:cap(c.buf)])
		if err != nil || n == 0 {
			return b, StageNone
		}
		c.buf = c.buf[:n]
	case StagePlanes:
		c.buf = c.plane.append(c.buf[:0], body)
	}
	if len(c.buf) > len(body)-len(body)/stageSaving || directio.Blocks(from+len(c.buf)) >= directio.Blocks(len(b)) {
		return b, StageNone
	}
	return append(b[:from], c.buf...), c.stage
}

// decoders are for pages of StageZstd. What a page may claim is bounded by its header, so a decoder needs no more memory.
var decoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(4*MaxPageBytes), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	return d
}}

// expand undoes the stage. The result has size bytes and lies in scratch, if that is long enough.
func (s Stage) expand(scratch, b []byte, size int) ([]byte, error) {
	if cap(scratch) < size {
		scratch = make([]byte, size)
	}
	scratch = scratch[:size]
	switch s {
	case StageZstd:
		d, ok := decoders.Get().(*zstd.Decoder)
		if !ok {
			return scratch, fmt.Errorf("zstd: no decoder")
		}
		defer decoders.Put(d)
		out, err := d.DecodeAll(b, scratch[:0:size])
		if err != nil {
			return scratch, fmt.Errorf("zstd: %w", err)
		}
		if len(out) != size {
			return scratch, fmt.Errorf("zstd: %d bytes must be %d", len(out), size)
		}
		return out, nil
	case StageLZ4:
		n, err := lz4.UncompressBlock(b, scratch)
		if err != nil || n != size {
			return scratch, fmt.Errorf("lz4: %d bytes must be %d: %v", n, size, err)
		}
	case StagePlanes:
		return scratch, expandPlanes(scratch, b)
	}
	return scratch, nil
}
