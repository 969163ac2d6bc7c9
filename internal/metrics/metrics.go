// Package metrics makes OpenTelemetry metrics of structs whose fields say in tags what they count, so that a number is declared once:
//
//	Lookups int64 `kind:"counter" metric:"tensorcache.lookups" unit:"{row}" help:"Rows looked up, duplicates included."`
//
// The tags of a field:
//
//	kind    counter: an integer that only grows, or an array of them. Subtract subtracts these.
//	        level: an integer or a bool, 0 or 1, that may be summed over attributes.
//	        gauge: an integer, a bool, a float64, or a time.Duration, in seconds. NaN is not observed.
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

// Field is a field of a struct that has a kind.
type Field struct {
	Kind, Metric, Unit, Help string
	With                     []attribute.KeyValue
	index                    int
	integer                  bool // else a float
}

// Fields returns the fields of a struct that have a kind, in their order.
func Fields(of reflect.Type) (all []Field) {
	for i := range of.NumField() {
		f := of.Field(i)
		field := Field{
			Kind: f.Tag.Get("kind"), Metric: f.Tag.Get("metric"), Unit: f.Tag.Get("unit"), Help: f.Tag.Get("help"),
			index: i, integer: f.Type.Kind() != reflect.Float64 && f.Type != reflect.TypeFor[time.Duration](),
		}
		if field.Kind == "" {
			continue
		}
		if with := f.Tag.Get("with"); with != "" {
			for one := range strings.SplitSeq(with, ",") {
				key, value, _ := strings.Cut(one, "=")
				field.With = append(field.With, attribute.String(key, value))
			}
		}
		all = append(all, field)
	}
	return all
}

// Subtract subtracts the counters of earlier statistics from those of now.
func Subtract[T any](now, earlier *T) {
	to, from := reflect.ValueOf(now).Elem(), reflect.ValueOf(earlier).Elem()
	for _, f := range Fields(to.Type()) {
		switch n, then := to.Field(f.index), from.Field(f.index); {
		case f.Kind != "counter":
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

// instrument is what the fields of one metric are observed by: floats unless the metric has integers.
type instrument struct {
	integers metric.Int64Observable
	floats   metric.Float64Observable
}

// Register makes the metrics of structs, given by any values of them. read is called when the metrics are collected.
func Register(m metric.Meter, structs []any, read func(Observe)) (metric.Registration, error) {
	fields, instruments := map[reflect.Type][]Field{}, map[string]instrument{}
	var all []metric.Observable
	var faults []error
	for _, s := range structs {
		of := reflect.TypeOf(s)
		for _, f := range Fields(of) {
			if f.Metric == "" {
				continue
			}
			fields[of] = append(fields[of], f)
			if f.Unit != "" {
				i, one, err := f.instrument(m)
				instruments[f.Metric], all, faults = i, append(all, one), append(faults, err)
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
				if len(f.With) > 0 {
					option = metric.WithAttributeSet(attribute.NewSet(slices.Concat(f.With, with)...))
				}
				if i := instruments[f.Metric]; i.integers != nil {
					o.ObserveInt64(i.integers, integer(value), option)
				} else if n := float(value); !math.IsNaN(n) {
					o.ObserveFloat64(i.floats, n, option)
				}
			}
		})
		return nil
	}, all...)
}

// instrument makes the instrument of a metric.
func (f *Field) instrument(m metric.Meter) (i instrument, one metric.Observable, err error) {
	switch unit, help := metric.WithUnit(f.Unit), metric.WithDescription(f.Help); {
	case f.Kind == "counter":
		i.integers, err = m.Int64ObservableCounter(f.Metric, unit, help)
	case f.Kind == "level":
		i.integers, err = m.Int64ObservableUpDownCounter(f.Metric, unit, help)
	case f.integer:
		i.integers, err = m.Int64ObservableGauge(f.Metric, unit, help)
	default:
		i.floats, err = m.Float64ObservableGauge(f.Metric, unit, help)
		return i, i.floats, err
	}
	return i, i.integers, err
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
