package numa

import "errors"

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

// Add returns the sums of a and b by node. All three are in ascending order of nodes.
func Add(a, b []Held) (sum []Held) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Node < b[0].Node:
			sum, a = append(sum, a[0]), a[1:]
		case len(a) == 0 || b[0].Node < a[0].Node:
			sum, b = append(sum, b[0]), b[1:]
		default:
			sum = append(sum, Held{a[0].Node, a[0].Bytes + b[0].Bytes})
			a, b = a[1:], b[1:]
		}
	}
	return sum
}
