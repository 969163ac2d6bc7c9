package report

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// chart is what a picture shows: curves. view lays it out; the template "drawing" draws it, in the page and in a file of its own.
type chart struct {
	id, title, caption string
	x, y               axis
	lines              []series
}

// axis says how values are placed and written.
type axis struct {
	label string
	log   bool
	// ticks are where the axis has ticks; nil for round values.
	ticks []float64
	// fromZero widens what the values span.
	fromZero bool
	// tick writes round values, value any.
	tick, value func(float64) string
}

type xy struct{ X, Y float64 }

// series is a curve. look numbers its colour, dashes and mark.
type series struct {
	name   string
	points []xy
	look   int
	// kind is "", solid, dashed (what a line is compared with) or dotted (limits, without marks): how the line is drawn whatever its look.
	kind string
}

const (
	solid  = "solid"
	dashed = "beside"
	dotted = "limit"
)

// looks is the number of series that are told apart; charts of more are split.
const looks = 8

// The units of axes.
var (
	byPercent = axis{tick: func(x float64) string { return short(100*x) + " %" }, value: percent}
	byBytes   = axis{tick: func(x float64) string { return bytesOf(int64(x)) }, value: func(x float64) string { return bytesOf(int64(x)) }}
	byCount   = axis{tick: func(x float64) string { return count(int64(x)) }, value: func(x float64) string { return count(int64(x)) }}
	byNumber  = axis{tick: short, value: figure}
)

func (a axis) named(label string) axis      { a.label = label; return a }
func (a axis) zero() axis                   { a.fromZero = true; return a }
func (a axis) logIf(values ...float64) axis { a.log = wide(values); return a }
func short(x float64) string                { return strconv.FormatFloat(x, 'g', 4, 64) }
func xsOf(all []series) (xs []float64) {
	return coordinates(all, func(p xy) float64 { return p.X })
}
func ysOf(all []series) (ys []float64) {
	return coordinates(all, func(p xy) float64 { return p.Y })
}

func coordinates(all []series, of func(xy) float64) (values []float64) {
	for _, s := range all {
		for _, p := range s.points {
			values = append(values, of(p))
		}
	}
	return values
}

// micros writes microseconds in three digits.
func micros(x float64) string {
	d := time.Duration(x * float64(time.Microsecond))
	for unit := time.Duration(1); unit <= time.Minute; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}

// wide says that values span so much that only a logarithm shows the small ones.
func wide(values []float64) bool {
	if len(values) == 0 {
		return false
	}
	return slices.Min(values) > 0 && slices.Max(values) >= 10*slices.Min(values)
}

// span is what an axis shows of these values: whole steps between its ticks, or a little room on a logarithm.
func (a *axis) span(values []float64) (lo, hi float64) {
	if len(values) > 0 {
		lo, hi = slices.Min(values), slices.Max(values)
	}
	switch {
	case a.log && lo > 0:
		return lo / 1.08, hi * 1.08
	case a.fromZero:
		lo = min(lo, 0)
	}
	if lo == hi {
		lo, hi = lo-math.Abs(lo)/10, hi+math.Abs(hi)/10
		if lo == hi {
			hi = 1
		}
	}
	if t := roundTicks(lo, hi); len(t) > 1 {
		step := t[1] - t[0]
		lo, hi = step*math.Floor(lo/step+1e-9), step*math.Ceil(hi/step-1e-9)
	}
	return lo, hi
}

// roundTicks are at most eight multiples of 1, 2 or 5 times a power of ten.
func roundTicks(lo, hi float64) (ticks []float64) {
	power := math.Pow(10, math.Floor(math.Log10((hi-lo)/8)))
	step := 10 * power
	for _, s := range []float64{1, 2, 5} {
		if (hi-lo)/(s*power) <= 8 {
			step = s * power
			break
		}
	}
	for k := math.Ceil(lo / step); k*step <= hi; k++ {
		ticks = append(ticks, k*step+0) // + 0 makes a negative zero positive
	}
	return ticks
}

// tickValues are at most nine where the axis does not say.
func (a *axis) tickValues(lo, hi float64) (ticks []float64) {
	if a.ticks != nil {
		return a.ticks
	}
	if !a.log || lo <= 0 {
		return roundTicks(lo-1e-9*(hi-lo), hi+1e-9*(hi-lo)) // the ends are ticks, but for rounding
	}
	for _, steps := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
		ticks = nil
		for k := math.Floor(math.Log10(lo)); k <= math.Ceil(math.Log10(hi)); k++ {
			for _, s := range steps {
				if x := s * math.Pow(10, k); x >= lo && x <= hi {
					ticks = append(ticks, x)
				}
			}
		}
		if len(ticks) <= 9 {
			return ticks
		}
	}
	every := (len(ticks) + 8) / 9
	kept := ticks[:0]
	for i := 0; i < len(ticks); i += every {
		kept = append(kept, ticks[i])
	}
	return kept
}

// place maps a value to 0 … 1.
func (a *axis) place(x, lo, hi float64) float64 {
	if a.log && lo > 0 {
		return math.Log(max(x, lo)/lo) / math.Log(hi/lo)
	}
	return (x - lo) / (hi - lo)
}

// thin keeps at most n points, the first and last among them, evenly spread along the axis.
func thin(points []xy, a axis, n int) []xy {
	if len(points) <= n {
		return points
	}
	lo, hi := points[0].X, points[len(points)-1].X
	kept, last := []xy{}, -1
	for i, p := range points {
		if slot := int(a.place(p.X, lo, hi) * float64(n-1)); slot != last || i == len(points)-1 {
			kept, last = append(kept, p), slot
		}
	}
	return kept
}
