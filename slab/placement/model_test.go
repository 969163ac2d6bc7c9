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

// TestCurve_LeastMiss: misses of rows shorter than LeastMiss take as long as of that length, in and outside the ranking, and hits do not.
func TestCurve_LeastMiss(t *testing.T) {
	for _, x := range []struct {
		least  int
		misses float64 // nanoseconds of all lookups
	}{{0, 3*32 + 5*16}, {24, 3*32 + 5*24}, {48, 3*48 + 5*48}} {
		c := &placement.Curve{LeastMiss: x.least}
		c.Add(64, 64, 32, 7)
		c.Add(64, 64, 32, 3)
		c.AddTail(64, 16, 5)
		plan := placement.Problem{Rates: placement.Rates{Local: 1, Peer: 1e6, Host: 1}, Payload: []int64{64}, Curve: c}.Predict(0)
		if got := plan.Misses * 15; math.Abs(got-x.misses) > 1e-9 || math.Abs(plan.Hits*15-7*64) > 1e-9 {
			t.Errorf("at least %d bytes: misses take %g ns, want %g; hits %g, want %d", x.least, got, x.misses, plan.Hits*15, 7*64)
		}
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
		{"both", placement.Rates{Local: 2, Peer: 0.5, Host: 0.25}, 100 * 128, 124 * 128},
		{"either", placement.Rates{Local: 2, Peer: 0.5, Host: 2.5}, 50*32 + 50*64, 76 * 32},
	} {
		p := placement.Problem{Rates: x.rates, Payload: []int64{5 * 64, 5 * 64}, Curve: c}
		plan := p.Predict(0)
		for _, y := range []struct{ got, want float64 }{{plan.Nanos, x.partition}, {plan.Partition, x.partition}, {plan.Replicate, x.replicate}} {
			if math.Abs(y.got*200/y.want-1) > 0.01 {
				t.Errorf("%s: %g ns, want %g: %s", x.name, y.got*200, y.want, plan.Why)
			}
		}
	}
}

// TestProblem_NothingIsBetter: no split of a fine grid is predicted to take less, for random problems.
func TestProblem_NothingIsBetter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		p := placement.Problem{
			Rates: placement.Rates{Local: 1 + 100*r.Float64(), Peer: 0.1 + 10*r.Float64(), Host: 0.1 + 10*r.Float64()}, Curve: zipf(1 + r.IntN(3000)),
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
		"local=1,peer=2":         "placement: rate host (0 GB/s) must be above 0, at most 10^6",
		"local=1,peer=-2,host=3": "placement: rate peer (-2 GB/s) must be above 0, at most 10^6",
		"local=1,local=2":        `placement: rate ("local=2") must be one of local, peer and host, each once`,
		"speed=1":                `placement: rate ("speed=1") must be one of local, peer and host, each once`,
		"local":                  `placement: rate ("local") must be name=number`,
		"local=NaN":              `placement: rate ("local=NaN") must be name=number`,
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

// TestRates_WithdrawnTerms: files and flags of the earlier cost model are read, and its terms ignored.
func TestRates_WithdrawnTerms(t *testing.T) {
	want := placement.Rates{Local: 1, Peer: 2, Host: 3}
	if r, err := placement.ParseRates("local=1,overhead=7,row=0.1,peer=2,beside=0.5,host=3,same=15"); err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	m, err := placement.DecodeRates(strings.NewReader(`{"local_gb_per_second": 1, "peer_gb_per_second": 2, "host_gb_per_second": 3,
		"batch_overhead_us": 7, "row_ns": 0.1, "beside": 0.5, "same_row_ns": 15, "source": "x", "row_bytes": 512}`))
	if err != nil || m.Rates != want || m.Source != "x" || m.RowBytes != 512 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestProblem_MeasuredPair: with the rates and hit rates measured on two H200s, the model picks the placement that was faster there, and
// predicts both times within 15 %: 562 us a batch of 200,000 rows of 512 bytes with no copies, 609 with all rows copied.
func TestProblem_MeasuredPair(t *testing.T) {
	const batch, slots, stored = 200_000, 1000, 459
	c := &placement.Curve{}
	for i := range 2 * slots {
		hits := 0.7907 // of all lookups, in the rows that either device holds
		if i >= slots {
			hits = 0.8232 - 0.7907
		}
		c.Add(464, 512, stored, batch*hits/slots)
	}
	c.AddTail(512, stored, batch*(1-0.8232))
	p := placement.Problem{Rates: placement.Rates{Local: 1234, Peer: 303, Host: 32.9}, Payload: []int64{464 * slots, 464 * slots}, Curve: c}
	plan := p.Solve()
	partition, replicate := plan.Partition*batch/1e3, plan.Replicate*batch/1e3
	if plan.HotBytes != 0 || math.Abs(partition/562-1) > 0.15 || math.Abs(replicate/609-1) > 0.15 {
		t.Errorf("partitioned %.0f us, all copied %.0f us: %+v", partition, replicate, plan)
	}
}
