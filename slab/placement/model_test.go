package placement_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/slab/placement"
)

// zipf returns the curve of rows looked up 1/rank often, each of 64 bytes in 64.
func zipf(rows int) *placement.Curve {
	c := &placement.Curve{}
	for i := range rows {
		c.Add(64, 64, 64, 1000/float64(1+i))
	}
	return c
}

// TestProblem_Extremes: what can be said without a model.
func TestProblem_Extremes(t *testing.T) {
	payload := []int64{64 * 500, 64 * 500}
	for name, x := range map[string]struct {
		rates placement.Rates
		hot   func(int64) bool
		why   string
	}{
		"slow misses":          {placement.Rates{Local: 1000, Peer: 900, Host: 0.01}, func(n int64) bool { return n == 0 }, "misses"},
		"slow peers":           {placement.Rates{Local: 1000, Peer: 0.001, Host: 900}, func(n int64) bool { return n == 64*500 }, "all copied"},
		"something in between": {placement.Rates{Local: 100, Peer: 1, Host: 2}, func(n int64) bool { return n > 0 && n < 64*500 }, "first"},
		"misses take longest":  {placement.Rates{Local: 1000, Peer: 300, Host: 50}, func(n int64) bool { return n == 0 }, "misses"},
		"so they do, yet hits take from them": {
			placement.Rates{Local: 1000, Peer: 300, Host: 50, Beside: 0.3}, func(n int64) bool { return n > 0 && n < 64*500 }, "first",
		},
		"the first row queues": {placement.Rates{Local: 1000, Peer: 300, Host: 50, Same: 10}, func(n int64) bool { return n > 0 && n < 64*100 }, "first"},
	} {
		p := placement.Problem{Rates: x.rates, Payload: payload, Curve: zipf(10_000)}
		plan := p.Solve()
		if !x.hot(plan.HotBytes) || !strings.Contains(plan.Why, x.why) || plan.Nanos > plan.Partition || plan.Nanos > plan.Replicate {
			t.Errorf("%s: %+v", name, plan)
		}
		if sum := plan.Local + plan.Peer + plan.Host; math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: shares sum to %g", name, sum)
		}
	}
	one := placement.Problem{Rates: placement.Rates{Local: 1, Peer: 1, Host: 1}, Payload: payload[:1], Curve: zipf(100)}.Solve()
	if one.HotBytes != 0 || one.Why != "one device" || one.Peer != 0 {
		t.Errorf("one device: %+v", one)
	}
}

// TestProblem_Terms: what each rate adds to the time, of ten rows of which each device holds the first five or every other one.
func TestProblem_Terms(t *testing.T) {
	c := &placement.Curve{}
	for _, f := range []float64{50, 8, 7, 6, 5, 5, 5, 5, 5, 4} {
		c.Add(64, 64, 32, f)
	}
	c.AddTail(64, 32, 100)
	for _, x := range []struct {
		name                 string
		rates                placement.Rates
		partition, replicate float64 // nanoseconds, of 200 lookups
	}{
		// Half of the hits are a peer's; with copies, 24 lookups more miss.
		{"hits", placement.Rates{Local: 2, Peer: 0.5, Host: 1e6}, 50*32 + 50*64, 76 * 32},
		{"misses", placement.Rates{Local: 1e6, Peer: 1e6, Host: 0.25}, 100 * 128, 124 * 128},
		{"beside", placement.Rates{Local: 2, Peer: 0.5, Host: 0.25, Beside: 0.5}, 100*128 + 2400, 124*128 + 1216},
		{"row", placement.Rates{Local: 1e6, Peer: 1e6, Host: 0.25, Row: 3}, 100*128 + 600, 124*128 + 600},
		{"same", placement.Rates{Local: 1e6, Peer: 1e6, Host: 0.25, Same: 4}, 100*128 + 100, 124 * 128},
	} {
		p := placement.Problem{Rates: x.rates, Payload: []int64{5 * 64, 5 * 64}, Curve: c}
		plan := p.Predict(0)
		for _, y := range []struct{ got, want float64 }{{plan.Nanos, x.partition}, {plan.Partition, x.partition}, {plan.Replicate, x.replicate}} {
			if math.Abs(y.got*200/y.want-1) > 0.01 {
				t.Errorf("%s: %g ns, want %g: %s", x.name, y.got*200, y.want, plan.Why)
			}
		}
	}
	same := placement.Problem{Rates: placement.Rates{Local: 1e6, Peer: 1e6, Host: 0.25, Same: 4}, Payload: []int64{5 * 64, 5 * 64}, Curve: c}
	if got, want := same.Predict(64).Nanos*200, 104*128+8*4/2.; math.Abs(got/want-1) > 0.01 {
		t.Errorf("the first row copied: %g ns, want %g", got, want)
	}
}

// TestProblem_NothingIsBetter: no split of a fine grid is predicted to take less, for random problems.
func TestProblem_NothingIsBetter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		p := placement.Problem{
			Rates: placement.Rates{Local: 1 + 100*r.Float64(), Peer: 0.1 + 10*r.Float64(), Host: 0.1 + 10*r.Float64(), Beside: r.Float64(), Row: r.Float64(), Same: 10 * r.Float64()}, Curve: zipf(1 + r.IntN(3000)),
		}
		largest := int64(0)
		for range 1 + r.IntN(8) {
			n := 64 * (1 + r.Int64N(1000))
			p.Payload, largest = append(p.Payload, n), max(largest, n)
		}
		p.Curve.AddTail(64, 64, 1000*r.Float64())
		best := p.Solve()
		for hot := int64(0); hot <= largest; hot += 64 {
			if q := p.Predict(hot); q.Nanos < best.Nanos*(1-1e-6) {
				t.Fatalf("%+v: %d bytes of copies take %g ns, %d take %g", p.Payload, best.HotBytes, best.Nanos, hot, q.Nanos)
			}
		}
	}
}

// TestRates_BadInput: rates out of range, or of another form, are errors that say which.
func TestRates_BadInput(t *testing.T) {
	for text, want := range map[string]string{
		"local=1,peer=2":                    "placement: rate host (0 GB/s) must be above 0, at most 10^6",
		"local=1,peer=-2,host=3":            "placement: rate peer (-2 GB/s) must be above 0, at most 10^6",
		"local=1,local=2":                   `placement: rate ("local=2") must be one of local, peer, host, overhead, row, beside and same, each once`,
		"speed=1":                           `placement: rate ("speed=1") must be one of local, peer, host, overhead, row, beside and same, each once`,
		"local":                             `placement: rate ("local") must be name=number`,
		"local=NaN":                         `placement: rate ("local=NaN") must be name=number`,
		"local=1,peer=1,host=1,overhead=-1": "placement: overhead (-1 us) must be 0 to 10^9",
		"local=1,peer=1,host=1,row=-1":      "placement: row (-1 ns) must be 0 to 10^9",
		"local=1,peer=1,host=1,same=1e10":   "placement: same (1e+10 ns) must be 0 to 10^9",
		"local=1,peer=1,host=1,beside=1.5":  "placement: beside (1.5) must be 0 to 1",
	} {
		if _, err := placement.ParseRates(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v\nwant %s", text, err, want)
		}
	}
	for _, text := range []string{"", "{}", `{"local_gb_per_second": 1}`, `{"speed": 1}`, `[]`, `{"local_gb_per_second":1,"peer_gb_per_second":1,"host_gb_per_second":1} {}`} {
		if _, err := placement.DecodeRates(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
