package admission

var _ = register(Spec{Name: "static-optimal", Learns: FromFuture, New: simple(NewStaticOptimal)})

// NewStaticOptimal returns a policy that gives an upper bound for the hit ratio of static caches, if it is trained with the
// batches that will be measured. It ranks rows by frequency per byte of device memory, and otherwise equals NewStaticFrequency.
func NewStaticOptimal() Policy {
	return &staticFrequency{name: "static-optimal", value: func(p *Problem, key uint64, n float64) float64 {
		return n / p.bytes(key)
	}}
}
