package report

import (
	"fmt"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

func codecTables(r *Results) section {
	s := section{
		ID: "codecs", Title: "Codecs", Missing: "Codecs: there is no output of compress --json.",
		Lead: "The whole table with each codec; speeds are of one core. “Rows raw” did not shrink. Stored bytes exclude the codec's metadata. “Buddy target” is the length of slots of a resident table that leaves at most 30 % of the rows longer, “overflow” their share, “gain” row bytes ÷ target.",
	}
	files, codecs := experiment.GroupBy(r.Codecs, func(x *Codec) string { return x.File })
	for _, f := range files {
		first := codecs[f][0]
		t := newTableView(fmt.Sprintf("%s: %s rows of %s B", f, count(int64(first.Rows)), count(int64(first.RowBytes))), "codec", codecColumns)
		t.Header = append(t.Header, "round trip")
		for _, x := range codecs[f] {
			t.Rows = append(t.Rows, append(rowOf(x.Codec, &x.CodecResult, codecColumns), entry{Text: x.RoundTrip, Bad: x.RoundTrip != "ok"}))
		}
		s.Tables = append(s.Tables, t)
	}
	return s
}

// codecColumns are the figures of a codec, on the page and in text.
var codecColumns = []column[experiment.CodecResult]{
	{"ratio", func(x *experiment.CodecResult) float64 { return x.Ratio }, decimals},
	{"saving", func(x *experiment.CodecResult) float64 { return x.SavingPercent / 100 }, percent},
	{"rows raw", func(x *experiment.CodecResult) float64 { return float64(x.RawRows) }, wholeCount},
	{"rows in a slab", func(x *experiment.CodecResult) float64 { return x.Held.Slab }, timesAs},
	{"in the host tier", func(x *experiment.CodecResult) float64 { return x.Held.Host }, timesAs},
	{"in both", func(x *experiment.CodecResult) float64 { return x.Held.Both }, timesAs},
	{"metadata", func(x *experiment.CodecResult) float64 { return float64(x.MetadataBytes) }, wholeBytes},
	{"encode GB/s", func(x *experiment.CodecResult) float64 { return x.EncodeGBPerSecond }, ifAny},
	{"decode GB/s", func(x *experiment.CodecResult) float64 { return x.DecodeGBPerSecond }, ifAny},
	// Of a resident table: a slot that leaves at most 30 % of the rows longer, these, and row bytes ÷ slot.
	{"resident slot", func(x *experiment.CodecResult) float64 { return float64(x.Buddy.TargetBytes) }, wholeBytes},
	{"overflow", func(x *experiment.CodecResult) float64 { return x.Buddy.OverflowRatio }, percent},
	{"gain", func(x *experiment.CodecResult) float64 { return x.Buddy.CapacityGain }, decimals},
}

func simulatedTables(r *Results) (tables []tableView) {
	files, points := experiment.GroupBy(r.Simulated, func(x *SimulatedPoint) string { return x.File })
	for _, f := range files {
		t := newTableView("Simulation "+f, "policy", simulatedColumns)
		for _, x := range points[f] {
			t.Rows = append(t.Rows, rowOf(x.Policy, x, simulatedColumns))
		}
		tables = append(tables, t)
	}
	return tables
}

var simulatedColumns = []column[SimulatedPoint]{
	{"objects", func(x *SimulatedPoint) float64 { return float64(x.CacheObjects) }, wholeCount},
	{"size", func(x *SimulatedPoint) float64 { return float64(x.CacheBytes) }, wholeBytes},
	{"requests", func(x *SimulatedPoint) float64 { return float64(x.Requests) }, wholeCount},
	{"misses", func(x *SimulatedPoint) float64 { return float64(x.Misses) }, wholeCount},
	{"miss ratio", func(x *SimulatedPoint) float64 { return x.MissRatio }, percent},
	{"byte miss ratio", func(x *SimulatedPoint) float64 { return x.ByteMissRatio }, percent},
	{"requests/s", func(x *SimulatedPoint) float64 { return x.RequestsPerSecond }, rate},
}
