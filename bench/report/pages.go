package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Packed prints what was packed.
func Packed(w io.Writer, p *experiment.Packed) error {
	out := &printer{w: w}
	packedLines(out, p)
	codecs(out, p.Choice)
	if p.ResumedRows > 0 {
		out.line("resumed", "%s rows were packed before", count(p.ResumedRows))
	}
	out.line("written", "%s, generation %d, in %.1f s", p.Out, p.Generation, p.Seconds)
	if len(p.Dropped) > 0 {
		out.line("deleted", "generations that nobody reads: %s", strings.Trim(fmt.Sprint(p.Dropped), "[]"))
	}
	return out.err
}

// VerifiedPages prints what was checked.
func VerifiedPages(w io.Writer, v *experiment.VerifiedPages) error {
	out := &printer{w: w}
	packedLines(out, &v.Packed)
	out.line("verified", "all pages, generation %d, in %.1f s; no fault", v.Generation, v.Seconds)
	if v.UpdatedRows > 0 {
		out.line("log", "%s updated rows that are not in the pages yet; no fault", count(v.UpdatedRows))
	}
	return out.err
}

// MergedPages prints what was merged.
func MergedPages(w io.Writer, m *experiment.MergedPages) error {
	out := &printer{w: w}
	packedLines(out, &m.Packed)
	if m.UpdatedRows == 0 {
		out.line("merged", "nothing: the log has no updated rows")
		return out.err
	}
	out.line("merged", "%s updated rows (%s), generation %d, in %.1f s", count(m.UpdatedRows), bytesOf(m.UpdateBytes), m.Generation, m.Seconds)
	out.line("written", "%s pages (%s)", count(int64(m.PagesWritten)), bytesOf(m.BytesWritten))
	return out.err
}

// Unpacked prints what was unpacked.
func Unpacked(w io.Writer, p *experiment.Packed) error {
	out := &printer{w: w}
	out.line("unpacked", "%s rows of %s B (%s) to %s in %.1f s", count(p.Rows), count(int64(p.RowBytes)), p.DType, p.Out, p.Seconds)
	return out.err
}

func packedLines(out *printer, p *experiment.Packed) {
	out.line("table", "%s: %s rows of %s B (%s), %s", p.Name, count(p.Rows), count(int64(p.RowBytes)), p.DType, bytesOf(p.Rows*int64(p.RowBytes)))
	codec := p.Codec
	if p.Choice != nil {
		codec += ", picked by auto for " + p.Choice.Machine + ": " + p.Choice.Reason
	}
	out.line("codec", "%s", codec)
	out.line("stored", "%s, %s rows raw", bytesOf(p.StoredBytes), count(p.RawRows))
	ordered := ""
	if p.Ordered {
		ordered = "; ordered"
	}
	out.line("pages", "%s of at most %s, %s together, 1/%.3f of the rows; second stage %s%s",
		count(int64(p.Pages)), bytesOf(int64(p.LongestPage)), bytesOf(p.PagesBytes), p.Ratio, p.Stage, ordered)
}
