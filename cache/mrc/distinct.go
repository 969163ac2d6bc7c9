package mrc

import (
	"math"
	"math/bits"
)

// distinct estimates the number of distinct hashes. It is a HyperLogLog sketch of 16 KiB with the LogLog-Beta estimator (Qin,
// Kim and Tung, 2016). The standard error is 0.8 %.
type distinct struct {
	registers [distinctRegisters]uint8
	sum       float64 // of 2^-register over all registers
	zeros     int
	estimate  float64 // 0 if not computed
}

const (
	distinctBits      = 14
	distinctRegisters = 1 << distinctBits
)

func newDistinct() *distinct { return &distinct{sum: distinctRegisters, zeros: distinctRegisters} }

func (d *distinct) add(hash uint64) {
	at := hash >> (64 - distinctBits)
	rank := uint8(bits.LeadingZeros64(hash<<distinctBits|1<<(distinctBits-1))) + 1
	r := &d.registers[at]
	if rank <= *r {
		return
	}
	if *r == 0 {
		d.zeros--
	}
	d.sum += math.Ldexp(1, -int(rank)) - math.Ldexp(1, -int(*r))
	*r = rank
	d.estimate = 0
}

func (d *distinct) count() float64 {
	if d.estimate == 0 {
		const m = distinctRegisters
		z := float64(d.zeros)
		l := math.Log1p(z)
		beta := -0.370393911*z + l*(0.070471823+l*(0.17393686+l*(0.16339839+l*(-0.09237745+l*(0.03738027+l*(-0.005384159+l*0.00042419))))))
		d.estimate = 0.7213 / (1 + 1.079/m) * m * (m - z) / (beta + d.sum)
	}
	return d.estimate
}
