package report

import (
	"io"
	"strings"

	"github.com/tensorcache/tensorcache/bench/trace"
)

// TraceInfo is what `cachebench trace info` prints.
type TraceInfo struct {
	File   string   `json:"file"`
	Format string   `json:"format"`
	Holds  []string `json:"holds"`
	// Sampling and Rate say how a capture chose its accesses; LostAccesses came too fast for it.
	Sampling     string  `json:"sampling"`
	Rate         float64 `json:"rate"`
	LostAccesses int64   `json:"lost_accesses"`
	trace.Summary
}

// NewTraceInfo puts together what a trace says and what was found in it.
func NewTraceInfo(file string, a trace.About, s trace.Summary) TraceInfo {
	holds := []string{"IDs"}
	for _, h := range []struct {
		name string
		has  bool
	}{
		{"sizes", a.Keeps.Sizes}, {"times", a.Keeps.Times}, {"operations", a.Keeps.Ops},
		{"next accesses", a.Keeps.Next && s.NextKnown > 0}, {"outcomes", a.Keeps.Outcomes && s.Hits+s.Misses > 0},
	} {
		if h.has {
			holds = append(holds, h.name)
		}
	}
	return TraceInfo{file, a.Format, holds, a.Header.Sampling.String(), a.Header.Rate, a.Lost, s}
}

// Trace prints what is in a trace.
func Trace(w io.Writer, t TraceInfo) error {
	out := &printer{w: w}
	out.line("trace", "%s", t.File)
	out.line("format", "%s: %s", t.Format, strings.Join(t.Holds, ", "))
	out.line("requests", "%s: %s gets, %s sets, %s deletes", count(t.Requests), count(t.Gets), count(t.Sets), count(t.Deletes))
	out.line("IDs", "%s in gets, %s of them once; %d to %d", count(t.IDs), count(t.OnceIDs), t.SmallestID, t.LargestID)
	out.line("first gets", "%s of gets are the first of their ID, and miss in any cache that begins empty", percent(t.ColdMissRatio))
	if t.LargestBytes > 0 {
		out.line("bytes", "%s requested, working set %s, objects %s to %s",
			bytesOf(int64(t.RequestedBytes)), bytesOf(int64(t.WorkingSetBytes)), bytesOf(t.SmallestBytes), bytesOf(t.LargestBytes))
	}
	if t.LastTime != t.FirstTime {
		out.line("time", "%d to %d", t.FirstTime, t.LastTime)
	}
	if n := t.Hits + t.Misses; n > 0 {
		out.line("captured", "%s hits, %s misses: %s hit", count(t.Hits), count(t.Misses), percent(float64(t.Hits)/float64(n)))
	}
	if t.Rate < 1 || t.LostAccesses > 0 {
		out.line("sampled", "%s, rate %g; %s accesses lost", t.Sampling, t.Rate, count(t.LostAccesses))
	}
	return out.err
}
