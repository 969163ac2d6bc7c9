package report

import (
	"cmp"
	"io"

	"github.com/tensorcache/tensorcache/bench/papers"
)

// Papers prints claims of papers beside what was measured.
func Papers(w io.Writer, r *papers.Result) error {
	out := &printer{w: w}
	for _, c := range r.Claims {
		measured := cmp.Or(c.Measured, c.Command, "nothing")
		out.line(c.Paper, "%s: %s", c.Where, c.What)
		out.line("", "claimed %s, here %s: %s", c.Claimed, measured, c.Verdict)
		if c.Data != "" {
			out.line("", "data: %s", c.Data)
		}
	}
	return out.err
}
