package report

import "fmt"

func codecTables(r *Results) section {
	s := section{
		ID: "codecs", Title: "Codecs", Missing: "Codecs: there is no output of compress --json.",
		Lead: "The whole table with each codec; speeds are of one core. Stored bytes exclude the codec's metadata.",
	}
	for _, f := range r.Codecs {
		t := tableView{Caption: f.File, Header: []string{"codec", "ratio", "saving", "rows", "row bytes", "rows stored raw", "metadata", "encode GB/s", "decode GB/s", "round trip"}, Texts: 1}
		if len(f.Codecs) > 0 {
			t.Caption = fmt.Sprintf("%s: %s rows of %s B", f.File, count(int64(f.Codecs[0].Rows)), count(int64(f.Codecs[0].RowBytes)))
		}
		for _, x := range f.Codecs {
			n := func(v float64, text string) entry { return entry{Text: text, Sort: fmt.Sprintf("%g", v)} }
			t.Rows = append(t.Rows, []entry{
				{Text: x.Codec}, n(x.Ratio, fmt.Sprintf("%.3f", x.Ratio)), n(x.SavingPercent, fmt.Sprintf("%.2f %%", x.SavingPercent)),
				n(float64(x.Rows), count(int64(x.Rows))), n(float64(x.RowBytes), count(int64(x.RowBytes))), n(float64(x.RawRows), count(int64(x.RawRows))),
				n(float64(x.MetadataBytes), bytesOf(x.MetadataBytes)), n(x.EncodeGBPerSecond, figure(x.EncodeGBPerSecond)), n(x.DecodeGBPerSecond, figure(x.DecodeGBPerSecond)),
				{Text: x.RoundTrip, Bad: x.RoundTrip != "ok"},
			})
		}
		s.Tables = append(s.Tables, t)
	}
	return s
}
