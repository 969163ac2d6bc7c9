package report

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aclements/go-moremath/scale"
)

// chart is what a picture shows: curves. View lays it out; the template "drawing" draws it, in the page and in a file of its own.
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

func (a axis) named(label string) axis { a.label = label; return a }
func (a axis) zero() axis              { a.fromZero = true; return a }
func short(x float64) string           { return strconv.FormatFloat(x, 'g', 4, 64) }

// logIfWide makes an axis logarithmic if only a logarithm shows the small ones of these values.
func (a axis) logIfWide(values []float64) axis {
	a.log = len(values) > 0 && slices.Min(values) > 0 && slices.Max(values) >= 10*slices.Min(values)
	return a
}

// coordinates returns all points' coordinates.
func coordinates(all []series) (xs, ys []float64) {
	for _, s := range all {
		for _, p := range s.points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	return xs, ys
}

// scaled returns the scale of an axis that shows these values, from 0 to 1, and its ticks.
func (a *axis) scaled(values []float64) (scale.Quantitative, []float64) {
	lo, hi := 0., 1.
	if len(values) > 0 {
		lo, hi = slices.Min(values), slices.Max(values)
	}
	if a.log && lo > 0 {
		s, _ := scale.NewLog(lo/1.08, hi*1.08, 10)
		decades, others := s.Ticks(scale.TickOptions{Max: 9})
		others = slices.DeleteFunc(others, func(x float64) bool { return !strings.ContainsAny(strconv.FormatFloat(x, 'e', 0, 64)[:1], "125") })
		switch {
		case a.ticks != nil:
			return &s, a.ticks
		case len(others) <= 9:
			return &s, others
		}
		return &s, decades
	}
	if a.fromZero {
		lo = min(lo, 0)
	}
	switch {
	case lo == 0 && hi == 0:
		hi = 1
	case lo == hi:
		lo, hi = min(0, 2*lo), max(2*hi, 0)
	}
	s := &scale.Linear{Min: lo, Max: hi}
	s.Nice(scale.TickOptions{Max: 11})
	ticks, _ := s.Ticks(scale.TickOptions{Max: 11})
	if a.ticks != nil {
		ticks = a.ticks
	}
	return s, ticks
}

// thin keeps about n points at most, the first and last among them, evenly spread along the axis.
func thin(points []xy, along scale.Quantitative, n int) []xy {
	if len(points) <= n {
		return points
	}
	kept, last := []xy{}, -1
	for i, p := range points {
		if slot := int(along.Map(p.X) * float64(n-1)); slot != last || i == len(points)-1 {
			kept, last = append(kept, p), slot
		}
	}
	return kept
}
