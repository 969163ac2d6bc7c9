package telemetry_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Received is what a Collector received, in OTLP's JSON encoding.
type Received struct {
	Spans  []Span
	Points []Point
}

// Span is a span.
type Span struct {
	Service, Scope string `json:"-"`

	Name              string
	TraceID           string     `json:"traceId"`
	SpanID            string     `json:"spanId"`
	ParentSpanID      string     `json:"parentSpanId"`
	StartTimeUnixNano int64      `json:"startTimeUnixNano,string"`
	EndTimeUnixNano   int64      `json:"endTimeUnixNano,string"`
	Attributes        attributes `json:"attributes"`
	Events            []struct {
		Name       string
		Attributes attributes
	}
	Links []struct {
		TraceID    string `json:"traceId"`
		SpanID     string `json:"spanId"`
		Attributes attributes
	}
}

// Point is the last value of an instrument for one set of attributes: of histograms the count.
type Point struct {
	Name, Unit string
	Attributes map[string]string
	Nanos      int64 // when, since 1970
	Value      float64
}

// Last returns the last value of an instrument whose attributes include those given, "key=value".
func (r *Received) Last(name string, with ...string) (value float64, ok bool) {
	for _, p := range r.Points {
		if p.Name == name && !slices.ContainsFunc(with, func(kv string) bool {
			key, value, _ := strings.Cut(kv, "=")
			return p.Attributes[key] != value
		}) {
			value, ok = p.Value, true
		}
	}
	return value, ok
}

// attributes are attributes as OTLP's JSON has them.
type attributes []struct {
	Key   string
	Value struct {
		StringValue *string
		IntValue    *string
		DoubleValue *float64
		BoolValue   *bool
		ArrayValue  *struct {
			Values []struct{ IntValue string }
		}
	}
}

// Map returns the attributes' values as text; lists are comma-separated.
func (a attributes) Map() map[string]string {
	m := map[string]string{}
	for _, kv := range a {
		switch v := kv.Value; {
		case v.StringValue != nil:
			m[kv.Key] = *v.StringValue
		case v.IntValue != nil:
			m[kv.Key] = *v.IntValue
		case v.DoubleValue != nil:
			m[kv.Key] = strconv.FormatFloat(*v.DoubleValue, 'g', -1, 64)
		case v.BoolValue != nil:
			m[kv.Key] = strconv.FormatBool(*v.BoolValue)
		case v.ArrayValue != nil:
			var list []string
			for _, x := range v.ArrayValue.Values {
				list = append(list, x.IntValue)
			}
			m[kv.Key] = strings.Join(list, ",")
		}
	}
	return m
}

// Int returns an attribute that is a whole number.
func (s *Span) Int(key string) (int64, error) {
	text, ok := s.Attributes.Map()[key]
	if !ok {
		return 0, fmt.Errorf("span %s has no %s but %v", s.Name, key, slices.Sorted(maps.Keys(s.Attributes.Map())))
	}
	return strconv.ParseInt(text, 10, 64)
}

type metric struct {
	Name, Unit string
	Sum, Gauge *struct{ DataPoints []point }
	Histogram  *struct{ DataPoints []point }
}

type point struct {
	Attributes   attributes
	TimeUnixNano int64 `json:"timeUnixNano,string"`
	AsInt        *string
	AsDouble     *float64
	Count        *string
}

func (m *metric) points() (all []Point) {
	for _, d := range []*struct{ DataPoints []point }{m.Sum, m.Gauge, m.Histogram} {
		if d == nil {
			continue
		}
		for _, p := range d.DataPoints {
			out := Point{Name: m.Name, Unit: m.Unit, Attributes: p.Attributes.Map(), Nanos: p.TimeUnixNano}
			switch {
			case p.AsInt != nil:
				out.Value, _ = strconv.ParseFloat(*p.AsInt, 64)
			case p.AsDouble != nil:
				out.Value = *p.AsDouble
			case p.Count != nil:
				out.Value, _ = strconv.ParseFloat(*p.Count, 64)
			}
			all = append(all, out)
		}
	}
	return all
}

// Read reads what a Collector's file exporter has written.
func Read(from io.Reader) (*Received, error) {
	r := &Received{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<28)
	for lines.Scan() {
		if err := r.add(lines.Bytes()); err != nil {
			return nil, fmt.Errorf("received: %w in %.200s", err, lines.Bytes())
		}
	}
	return r, lines.Err()
}

// add takes in a line: one request, of traces or of metrics.
func (r *Received) add(line []byte) error {
	var x struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes attributes }
			ScopeSpans []struct {
				Scope struct{ Name string }
				Spans []Span
			}
		}
		ResourceMetrics []struct {
			Resource     struct{ Attributes attributes }
			ScopeMetrics []struct {
				Scope   struct{ Name string }
				Metrics []metric
			}
		}
	}
	if err := json.Unmarshal(line, &x); err != nil {
		return err
	}
	for _, rs := range x.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				s.Service, s.Scope = rs.Resource.Attributes.Map()["service.name"], ss.Scope.Name
				r.Spans = append(r.Spans, s)
			}
		}
	}
	for _, rm := range x.ResourceMetrics {
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				r.Points = append(r.Points, m.points()...)
			}
		}
	}
	return nil
}
