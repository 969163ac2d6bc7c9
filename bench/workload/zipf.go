package workload

import (
	"math"
	"math/rand/v2"
)

// zipf draws ranks 1 to n with probability ∝ rank^-s, for any s ≥ 0, in constant time and memory: rejection from the
// integral of x^-s, inverted (Hörmann and Derflinger, 1996).
type zipf struct {
	n, s        float64
	first, last float64 // the integral's range
	accept      float64 // a rank this close above x is taken at once
}

// newZipf returns the distribution. REQUIRES: n ≥ 1, s ≥ 0 and finite.
func newZipf(n int64, s float64) zipf {
	z := zipf{n: float64(n), s: s}
	z.first = z.integral(1.5) - 1
	z.last = z.integral(z.n + 0.5)
	z.accept = 2 - z.inverse(z.integral(2.5)-z.weight(2))
	return z
}

// draw returns a rank, from 0.
func (z *zipf) draw(r *rand.PCG) int64 {
	for {
		u := z.last + uniform(r)*(z.first-z.last)
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.n)
		if k-x <= z.accept || u >= z.integral(k+0.5)-z.weight(k) {
			return int64(k) - 1
		}
	}
}

// weight is x^-s.
func (z *zipf) weight(x float64) float64 { return math.Exp(-z.s * math.Log(x)) }

// integral is that of x^-s, up to a constant.
func (z *zipf) integral(x float64) float64 {
	l := math.Log(x)
	t := (1 - z.s) * l
	if math.Abs(t) < 1e-8 {
		return l * (1 + t/2*(1+t/3))
	}
	return l * math.Expm1(t) / t
}

// inverse is the inverse of integral.
func (z *zipf) inverse(y float64) float64 {
	t := max(y*(1-z.s), -1)
	if math.Abs(t) < 1e-8 {
		return math.Exp(y * (1 - t*(0.5-t/3)))
	}
	return math.Exp(y * math.Log1p(t) / t)
}
