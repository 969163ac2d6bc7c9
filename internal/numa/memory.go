package numa

import (
	"errors"
	"slices"
)

// ErrRefused is wrapped by errors for operations that the system does not support or does not allow this process.
var ErrRefused = errors.New("numa: refused by the system")

// Memory is zeroed memory outside the Go heap, a whole number of pages. Child processes do not inherit it.
type Memory struct{ mapped []byte }

// Bytes returns the memory. It must not be used after Free.
func (m *Memory) Bytes() []byte { return m.mapped }

// Held is the number of bytes that lie on a node.
type Held struct {
	Node  int   `json:"node"`
	Bytes int64 `json:"bytes"`
}

// Add returns the sums of a and b by node, in ascending order of nodes.
func Add(a, b []Held) (sum []Held) {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y Held) int { return x.Node - y.Node })
	for _, h := range all {
		if n := len(sum); n > 0 && sum[n-1].Node == h.Node {
			sum[n-1].Bytes += h.Bytes
		} else {
			sum = append(sum, h)
		}
	}
	return sum
}
