package papers

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

func appendFloat(b []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
}

// upper returns the upper halves of float32: bfloat16, cut.
func upper(b []byte) []byte {
	half := make([]byte, 0, len(b)/2)
	for ; len(b) > 0; b = b[4:] {
		half = append(half, b[2], b[3])
	}
	return half
}

// rounded returns float32 with the lower halves zero.
func rounded(b []byte) []byte {
	c := append([]byte(nil), b...)
	for i := 0; i < len(c); i += 4 {
		c[i], c[i+1] = 0, 0
	}
	return c
}

func xor(a, b []byte) []byte {
	c := make([]byte, len(a))
	for i := range c {
		c[i] = a[i] ^ b[i]
	}
	return c
}

// network is a perceptron with one hidden layer, which learns another one's outputs.
type network struct {
	seed    uint64
	in, mid int
}

func newNetwork(seed uint64) *network { return &network{seed: seed, in: 128, mid: 512} }

// Training: so many steps at a rate that learns, and then at the rate of a fine-tuning, as in the paper's checkpoints.
const (
	fastSteps, slowSteps = 150, 40
	fastRate, slowRate   = 1e-3, 3e-5
	batchRows            = 8
	apart                = 10
)

// train trains the network by AdamW and returns its weights twice, apart steps apart at the end: float32, or bfloat16, which are then rounded after each step.
func (n *network) train(half bool) [2][]byte {
	r := rand.New(rand.NewPCG(n.seed, 0x7472_6169))
	teacher, student := n.weights(r), n.weights(r)
	first, second := make([]float64, len(student)), make([]float64, len(student))
	gradient := make([]float64, len(student))
	round := func(x float64) float64 {
		if !half {
			return float64(float32(x))
		}
		bits := math.Float32bits(float32(x))
		return float64(math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff))
	}
	var snapshots [2][]byte
	steps := fastSteps + slowSteps
	for i := range student {
		student[i] = round(student[i])
	}
	for step := 1; step <= steps; step++ {
		clear(gradient)
		for range batchRows {
			x := make([]float64, n.in)
			for i := range x {
				x[i] = r.NormFloat64()
			}
			_, want := n.forward(teacher, x)
			hidden, got := n.forward(student, x)
			for o := range got {
				got[o] -= want[o]
			}
			n.backward(student, gradient, x, hidden, got)
		}
		rate := fastRate
		if step > fastSteps {
			rate = slowRate
		}
		for i, g := range gradient {
			g /= batchRows
			first[i] = 0.9*first[i] + 0.1*g
			second[i] = 0.999*second[i] + 0.001*g*g
			m, v := first[i]/(1-math.Pow(0.9, float64(step))), second[i]/(1-math.Pow(0.999, float64(step)))
			student[i] = round(student[i]*(1-0.01*rate) - rate*m/(math.Sqrt(v)+1e-8))
		}
		if at := step - steps + apart; at == 0 || at == apart {
			var b []byte
			for _, w := range student {
				b = appendFloat(b, float32(w))
			}
			if half {
				b = upper(b)
			}
			snapshots[at/apart] = b
		}
	}
	return snapshots
}

// weights returns those of both layers, of N(0, 1/inputs).
func (n *network) weights(r *rand.Rand) []float64 {
	w := make([]float64, 2*n.in*n.mid)
	for i := range w {
		inputs := n.in
		if i >= n.in*n.mid {
			inputs = n.mid
		}
		w[i] = r.NormFloat64() / math.Sqrt(float64(inputs))
	}
	return w
}

func (n *network) forward(w, x []float64) (hidden, out []float64) {
	hidden, out = make([]float64, n.mid), make([]float64, n.in)
	for h := range hidden {
		row := w[h*n.in:][:n.in]
		for i, v := range x {
			hidden[h] += row[i] * v
		}
		hidden[h] = max(0, hidden[h])
	}
	for o := range out {
		row := w[n.in*n.mid+o*n.mid:][:n.mid]
		for h, v := range hidden {
			out[o] += row[h] * v
		}
	}
	return hidden, out
}

// backward adds the gradient of half the squared error.
func (n *network) backward(w, gradient, x, hidden, err []float64) {
	back := make([]float64, n.mid)
	for o, e := range err {
		at := n.in*n.mid + o*n.mid
		row, g := w[at:][:n.mid], gradient[at:][:n.mid]
		for h, v := range hidden {
			g[h] += e * v
			back[h] += e * row[h]
		}
	}
	for h, b := range back {
		if hidden[h] == 0 {
			continue
		}
		g := gradient[h*n.in:][:n.in]
		for i, v := range x {
			g[i] += b * v
		}
	}
}
