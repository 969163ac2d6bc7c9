// Package metrics makes OpenTelemetry metrics of structs whose fields say in tags what they count, so that a number is declared once:
//
//	Lookups int64 `kind:"counter" metric:"tensorcache.lookups" unit:"{row}" help:"Rows looked up, duplicates included."`
//
// The tags of a field:
//
//	kind    counter: an integer that only grows, or an array of them. Subtract subtracts these.
//	        level: an integer or a bool, 0 or 1, that may be summed over attributes.
//	        gauge: an integer, a bool, a float64, or a time.Duration, in seconds. NaN is not observed.
//	        histogram: a metric.Float64Histogram, which Histograms makes.
//	metric  the metric's name. Fields without one are not observed.
//	with    attributes that tell the fields of one metric apart: key=value, separated by commas
//	unit    of the metric, in one of its fields
//	help    what the metric says, beside the unit
//
// Functions are safe for concurrent use.
package metrics

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// field is a field that has a kind.
type field struct {
	index                    int
	kind, metric, unit, help string
	with                     []attribute.KeyValue
	integer                  bool // else a float
}

// fieldsOf returns the fields of a struct that have a kind, in their order.
func fieldsOf(of reflect.Type) (all []field) {
	for i := range of.NumField() {
		tag, kind := of.Field(i).Tag, of.Field(i).Type
		f := field{index: i, kind: tag.Get("kind"), metric: tag.Get("metric"), unit: tag.Get("unit"), help: tag.Get("help")}
		if f.kind == "" {
			continue
		}
		f.integer = kind.Kind() != reflect.Float64 && kind != reflect.TypeFor[time.Duration]()
		for with := range strings.SplitSeq(tag.Get("with"), ",") {
			if key, value, ok := strings.Cut(with, "="); ok {
				f.with = append(f.with, attribute.String(key, value))
			}
		}
		all = append(all, f)
	}
	return all
}

// Subtract subtracts the counters of earlier statistics from those of now.
func Subtract[T any](now, earlier *T) {
	to, from := reflect.ValueOf(now).Elem(), reflect.ValueOf(earlier).Elem()
	for _, f := range fieldsOf(to.Type()) {
		switch n, then := to.Field(f.index), from.Field(f.index); {
		case f.kind != "counter":
		case n.Kind() == reflect.Array:
			for i := range n.Len() {
				n.Index(i).SetInt(n.Index(i).Int() - then.Index(i).Int())
			}
		default:
			n.SetInt(n.Int() - then.Int())
		}
	}
}

// Observe tells the values of a struct's metrics, with attributes that all of them have. of is a pointer to the struct.
type Observe func(of any, with ...attribute.KeyValue)

// Register makes the metrics of structs, given by any values of them. read is called when the metrics are collected.
func Register(m metric.Meter, structs []any, read func(Observe)) (metric.Registration, error) {
	fields, instruments := map[reflect.Type][]field{}, map[string]metric.Observable{}
	var all []metric.Observable
	var faults []error
	for _, s := range structs {
		of := reflect.TypeOf(s)
		for _, f := range fieldsOf(of) {
			if f.metric == "" {
				continue
			}
			fields[of] = append(fields[of], f)
			if f.unit != "" {
				one, err := f.instrument(m)
				instruments[f.metric], all, faults = one, append(all, one), append(faults, err)
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		read(func(of any, with ...attribute.KeyValue) {
			v := reflect.ValueOf(of).Elem()
			alone := metric.WithAttributeSet(attribute.NewSet(slices.Clone(with)...))
			for _, f := range fields[v.Type()] {
				option, value := alone, v.Field(f.index)
				if len(f.with) > 0 {
					option = metric.WithAttributeSet(attribute.NewSet(slices.Concat(f.with, with)...))
				}
				if f.integer {
					o.ObserveInt64(instruments[f.metric].(metric.Int64Observable), integer(value), option)
				} else if n := float(value); !math.IsNaN(n) {
					o.ObserveFloat64(instruments[f.metric].(metric.Float64Observable), n, option)
				}
			}
		})
		return nil
	}, all...)
}

// Histograms sets the fields of the kind histogram of a struct, given by a pointer. Bounds are the upper ones of all buckets but the last.
func Histograms(m metric.Meter, of any, bounds ...float64) error {
	v := reflect.ValueOf(of).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if f.kind == "histogram" {
			one, err := m.Float64Histogram(f.metric, metric.WithUnit(f.unit), metric.WithDescription(f.help), metric.WithExplicitBucketBoundaries(bounds...))
			if err != nil {
				return err
			}
			v.Field(f.index).Set(reflect.ValueOf(one))
		}
	}
	return nil
}

// instrument makes the instrument of a metric.
func (f *field) instrument(m metric.Meter) (metric.Observable, error) {
	switch unit, help := metric.WithUnit(f.unit), metric.WithDescription(f.help); {
	case f.kind == "counter":
		return m.Int64ObservableCounter(f.metric, unit, help)
	case f.kind == "level":
		return m.Int64ObservableUpDownCounter(f.metric, unit, help)
	case f.integer:
		return m.Int64ObservableGauge(f.metric, unit, help)
	default:
		return m.Float64ObservableGauge(f.metric, unit, help)
	}
}

func integer(v reflect.Value) int64 {
	if v.Kind() == reflect.Bool {
		if v.Bool() {
			return 1
		}
		return 0
	}
	return v.Int()
}

func float(v reflect.Value) float64 {
	if v.CanFloat() {
		return v.Float()
	}
	return time.Duration(v.Int()).Seconds()
}
