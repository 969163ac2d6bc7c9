package buddy

import (
	"github.com/tensorcache/tensorcache/slab"
)

// Threshold is the share of rows with overflow that the paper allows.
const Threshold = 0.30

// Histogram counts the rows of a table by stored length, in steps of 16 bytes. It is not safe for concurrent use.
type Histogram struct {
	rowBytes int
	rows     int64
	steps    []int64 // steps[i] counts the rows of 16i+1 to 16i+16 bytes
}

// NewHistogram returns the empty histogram of a table whose rows have rowBytes bytes.
func NewHistogram(rowBytes int) *Histogram {
	return &Histogram{rowBytes: rowBytes, steps: make([]int64, MaxTarget(rowBytes)/MinTarget)}
}

// Add counts rows of a stored length from 1 byte to the row bytes.
func (h *Histogram) Add(stored int, rows int64) {
	h.steps[(slab.SlotBytes(stored)-1)/MinTarget] += rows
	h.rows += rows
}

// Rows returns how many rows were added.
func (h *Histogram) Rows() int64 { return h.rows }

// Choice is a target and what it amounts to.
type Choice struct {
	// Target is in bytes, the mean of all slots of a device if parts have several.
	Target int
	// Parts are all local numbers of a table in their order, at most 12 parts. Choices of a Histogram have none.
	Parts []Part
	// Overflow is the share of rows, 0 to 1, that have bytes beyond the target.
	Overflow float64
	// Gain is how many bytes of rows one byte of slots holds: row bytes ÷ target.
	Gain float64
	// Seconds is the expected time of a row that is read, if all rows are read as often.
	Seconds float64
}

// SlotsBytes returns the bytes of the slots of Parts on the first device, without slack: no other device has more.
func (c *Choice) SlotsBytes() (n int64) {
	for _, p := range c.Parts {
		n += (p.To - p.From) * int64(p.Target)
	}
	return n
}

// Of returns what a target amounts to.
func (h *Histogram) Of(target int, t Times) Choice {
	over, seconds := int64(0), 0.0
	for i := target / MinTarget; i < len(h.steps); i++ {
		if n := h.steps[i]; n > 0 {
			over += n
			if t.Overflow != nil {
				seconds += float64(n) * t.Overflow(min((i+1)*MinTarget, h.rowBytes)-target, Over(target, h.rowBytes))
			}
		}
	}
	rows := float64(max(1, h.rows))
	return Choice{
		Target: target, Overflow: float64(over) / rows, Gain: float64(h.rowBytes) / float64(target), Seconds: max(t.Hit, seconds/rows),
	}
}

// Least returns the least target that leaves at most the given share of rows, 0 to 1, with overflow: the paper's choice.
func (h *Histogram) Least(share float64) Choice {
	over := int64(0)
	for i := len(h.steps) - 1; i > 0; i-- {
		if over += h.steps[i]; float64(over) > share*float64(h.rows) {
			return h.Of((i+1)*MinTarget, Times{})
		}
	}
	return h.Of(MinTarget, Times{})
}

// slower is by how much a choice may be slower than the fastest one if its target is shorter.
const slower = 1.01

// Choose returns the target of at most most bytes with the least expected time, or the shortest of those that are within 1 % of it. At most the given
// share of rows has overflow; if no target up to most does that, ok is false.
func (h *Histogram) Choose(most int, share float64, t Times) (c Choice, ok bool) {
	most = min(most/MinTarget*MinTarget, MaxTarget(h.rowBytes))
	least := h.Least(share).Target
	if most < least {
		return Choice{}, false
	}
	c = h.Of(most, t) // no shorter one is faster
	lo, hi := least, most
	for limit := c.Seconds * slower; lo < hi; {
		mid := (lo + hi) / 2 / MinTarget * MinTarget
		if h.Of(mid, t).Seconds <= limit {
			hi = mid
		} else {
			lo = mid + MinTarget
		}
	}
	return h.Of(hi, t), true
}
