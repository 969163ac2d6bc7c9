package metrics

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

type numbers struct {
	Name    string
	Hits    int64    `kind:"counter"`
	Own     int64    `kind:"counter" metric:"hits" with:"slab=own,of=it" unit:"{row}" help:"Rows found."`
	Peer    int64    `kind:"counter" metric:"hits" with:"slab=peer,of=it"`
	Reasons [2]int64 `kind:"counter"`
	Rows    int      `kind:"level" metric:"rows" unit:"{row}" help:"Rows."`
	Past    bool     `kind:"level" metric:"past" unit:"1" help:"1 or 0."`
	Clients int64    `kind:"gauge" metric:"clients" unit:"1" help:"Clients now."`
	Content int64
	age     time.Duration `kind:"gauge" metric:"age" unit:"s" help:"Age."`
	ratio   float64       `kind:"gauge" metric:"ratio" unit:"1" help:"Ratio."`
}

func TestSubtract_CountersOnly(t *testing.T) {
	now := numbers{"now", 10, 7, 3, [2]int64{5, 6}, 100, true, 4, 50, time.Minute, 0.5}
	Subtract(&now, &numbers{"then", 1, 2, 3, [2]int64{4, 5}, 6, false, 7, 8, time.Second, 9})
	if want := (numbers{"now", 9, 5, 0, [2]int64{1, 1}, 100, true, 4, 50, time.Minute, 0.5}); now != want {
		t.Errorf("%+v, want %+v", now, want)
	}
}

func TestRegister_ObservesByTags(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	n := numbers{Own: 1<<62 + 1, Peer: 2, Rows: 3, Past: true, Clients: 4, age: 1500 * time.Millisecond, ratio: 0.25}
	registration, err := Register(meter, []any{numbers{}}, func(tell Observe) {
		tell(&n, attribute.String("table", "x"))
		tell(&numbers{ratio: math.NaN()}, attribute.String("table", "y"))
	})
	if err != nil {
		t.Fatal(err)
	}
	collect := func() (got []string) {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Fatal(err)
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				add := func(kind string, value any, set attribute.Set) {
					if table, _ := set.Value("table"); table.AsString() == "x" || m.Name == "ratio" {
						got = append(got, fmt.Sprintf("%s %s %s %q %s %v", m.Name, kind, m.Unit, m.Description, set.Encoded(attribute.DefaultEncoder()), value))
					}
				}
				switch d := m.Data.(type) {
				case metricdata.Sum[int64]:
					for _, p := range d.DataPoints {
						add(fmt.Sprint("sum ", d.IsMonotonic), p.Value, p.Attributes)
					}
				case metricdata.Gauge[int64]:
					for _, p := range d.DataPoints {
						add("integer", p.Value, p.Attributes)
					}
				case metricdata.Gauge[float64]:
					for _, p := range d.DataPoints {
						add("float", p.Value, p.Attributes)
					}
				}
			}
		}
		slices.Sort(got)
		return got
	}
	want := []string{
		`age float s "Age." table=x 1.5`, `clients integer 1 "Clients now." table=x 4`,
		`hits sum true {row} "Rows found." of=it,slab=own,table=x 4611686018427387905`, `hits sum true {row} "Rows found." of=it,slab=peer,table=x 2`,
		`past sum false 1 "1 or 0." table=x 1`, `ratio float 1 "Ratio." table=x 0.25`, `rows sum false {row} "Rows." table=x 3`,
	}
	if got := collect(); !slices.Equal(got, want) {
		t.Errorf("collected\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := registration.Unregister(); err != nil {
		t.Fatal(err)
	}
	if got := collect(); len(got) > 0 {
		t.Errorf("after Unregister: %v", got)
	}
}

func TestRegister_RefusesNames(t *testing.T) {
	type bad struct {
		N int64 `kind:"counter" metric:"1 name" unit:"1" help:"None."`
	}
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("test")
	if _, err := Register(meter, []any{bad{}}, func(Observe) {}); err == nil || !strings.Contains(err.Error(), "1 name") {
		t.Errorf("error %v", err)
	}
}
