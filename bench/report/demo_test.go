package report

import (
	"io"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// TestDemo_Widths prints tables of all widths that a codec's name and the text above it can give two columns.
func TestDemo_Widths(t *testing.T) {
	for codec := range 24 {
		for name := range 40 {
			r := &experiment.Result{}
			r.Cache.Codec = strings.Repeat("c", codec)
			d := &experiment.DemoResult{Tables: []experiment.DemoTable{{Name: strings.Repeat("n", name), Lookups: "uniform", Budget: "1%", Result: r}}}
			if err := Demo(io.Discard, d, "cachebench"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
