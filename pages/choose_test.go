package pages

import (
	"reflect"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
)

// TestPack_AutoKnowsTheTable: auto picks for the table's length, whatever the sample's. A sample of 512 KiB alone is a small table, of which codecs are trained
// on few rows.
func TestPack_AutoKnowsTheTable(t *testing.T) {
	race.SkipSequential(t)
	t.Parallel()
	const rows, rowBytes = 10_000, 128
	data := floats(rows, rowBytes/4, 8)
	sample := codec.Sample(data, rows, rowBytes, rowBytes, 0)
	pick := func(terms registry.Terms) registry.Choice {
		_, choice, err := registry.Pick(sample, rowBytes, dtype.Float32, terms)
		if err != nil {
			t.Fatal(err)
		}
		return choice
	}
	want := pick(registry.Terms{Rows: rows})
	if reflect.DeepEqual(want, pick(registry.Terms{})) {
		t.Fatal("the length of the table makes no difference here")
	}
	for name, open := range map[string]func() (Source, error){
		"any order":   func() (Source, error) { return &rowsSource{data: data, rowBytes: rowBytes}, nil },
		"in sequence": func() (Source, error) { return inOrder{&rowsSource{data: data, rowBytes: rowBytes}}, nil },
	} {
		var got registry.Choice
		m, err := Pack(t.Context(), open, NewMemory().Writer(), PackOptions{Codec: registry.Auto, DType: dtype.Float32, Chosen: func(c registry.Choice) { got = c }})
		if err != nil {
			t.Fatal(err)
		}
		if m.Codec != want.Codec || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s was picked by %+v, want %+v", name, m.Codec, got, want)
		}
	}
}
