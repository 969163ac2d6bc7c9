package admission

var _ = register(Spec{Name: "static-optimal", Learns: FromFuture, New: simple(NewStaticOptimal)})

// NewStaticOptimal returns the ceiling of hit ratio for a static cache: train it with the very batches that will be
// measured, and it ranks rows by their true frequency per slot byte. Otherwise it is as NewStaticFrequency.
func NewStaticOptimal() Policy {
	return &staticFrequency{name: "static-optimal", value: func(p *Problem, key uint64, n float64) float64 {
		return n / float64(p.SlotBytes(key))
	}}
}
