package wire

import (
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Missed asks what the owner knows of rows that a batch of the client has missed: RowsRequest → Misses.
const Missed = "missed"

// Misses has an entry for each row. Estimated says that the policy has given estimates.
type Misses struct {
	Estimated bool   `json:"estimated,omitempty"`
	Rows      []Miss `json:"rows"`
}

// Miss is what the owner knows of a row.
type Miss struct {
	Stored   int      `json:"stored"` // bytes of its newest version, negative if that is not known
	Estimate Estimate `json:"estimate,omitzero"`
	// At is when the row was withdrawn last, zero if that is not known; Age how long it had been cached; By which operation withdrew it. Trace and
	// Span are those of the operation in hexadecimal, if it was sampled.
	At    time.Time     `json:"at,omitzero"`
	Age   time.Duration `json:"age,omitempty"`
	By    string        `json:"by,omitempty"`
	Trace string        `json:"trace,omitempty"`
	Span  string        `json:"span,omitempty"`
}

// Estimate is admission.Estimate.
type Estimate struct {
	Frequency float64 `json:"frequency"`
	Score     float64 `json:"score"`
	Victim    float64 `json:"victim"`
	Rejected  bool    `json:"rejected,omitempty"`
}

// Cause returns the span of the operation that withdrew the row, the zero value if it was not sampled.
func (m *Miss) Cause() trace.SpanContext {
	of, err := trace.TraceIDFromHex(m.Trace)
	span, spanErr := trace.SpanIDFromHex(m.Span)
	if err != nil || spanErr != nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: of, SpanID: span, TraceFlags: trace.FlagsSampled, Remote: true})
}
