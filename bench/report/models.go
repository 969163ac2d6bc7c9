package report

import (
	"io"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/pages/model"
)

// PackedModel prints what was packed of a model.
func PackedModel(w io.Writer, p *model.Packed) error {
	out := &printer{w: w}
	out.line("model", "%s tensors in %s files, %s", count(int64(p.Tensors)), count(int64(p.Files)), bytesOf(p.Bytes))
	if p.Tied > 0 {
		out.line("tied", "%s tensors have the bytes of others, and are stored once", count(int64(p.Tied)))
	}
	modelBase(out, p.Base)
	for _, t := range p.Tables {
		what := "rows"
		if t.Delta {
			what = "differences"
		}
		out.line("table", "%s %s of %s B (%s): codec %s, second stage %s, %s", count(t.Rows), what, count(int64(t.RowBytes)), t.DType, t.Codec, t.Stage, bytesOf(t.StoredBytes))
	}
	out.line("stored", "%s, ratio %.3f, saves %.1f %%", bytesOf(p.StoredBytes), p.Ratio, 100*(1-float64(p.StoredBytes)/float64(max(1, p.Bytes))))
	if p.ResumedBytes > 0 {
		out.line("resumed", "%s were packed before", bytesOf(p.ResumedBytes))
	}
	out.line("written", "%s, hash %.16s…, in %.1f s", p.Out, p.Hash.String(), p.Seconds)
	return out.err
}

func modelBase(out *printer, b *model.Base) {
	if b != nil {
		out.line("base", "%s, hash %.16s…, the chain has %d", b.Path, b.Hash.String(), b.Depth)
	}
}

func modelLines(out *printer, m *experiment.ModelInfo) {
	out.line("model", "%s: %s tensors in %s files, %s, stored in %s", m.Path, count(int64(m.Tensors)), count(int64(m.Files)), bytesOf(m.Bytes), bytesOf(m.StoredBytes))
	modelBase(out, m.Base)
}

// VerifiedModel prints what was checked of a packed model.
func VerifiedModel(w io.Writer, m *experiment.ModelInfo) error {
	out := &printer{w: w}
	modelLines(out, m)
	out.line("verified", "%s pages and the contents of every tensor, in %.1f s; no fault", count(int64(m.Pages)), m.Seconds)
	return out.err
}

// UnpackedModel prints what was unpacked of a packed model.
func UnpackedModel(w io.Writer, m *experiment.ModelInfo) error {
	out := &printer{w: w}
	modelLines(out, m)
	out.line("unpacked", "to %s in %.1f s", m.Out, m.Seconds)
	return out.err
}
