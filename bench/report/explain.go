package report

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Explained prints where rows are, or why not.
func Explained(w io.Writer, rows []experiment.Explained) error {
	t := newTable("row", "where", "since", "why not", "stored", "slot", "frequency", "score", "victim's", "withdrawn")
	for _, e := range rows {
		where, since, why, withdrawn := e.Where, "", reasonText(e.Reason), ""
		if e.Since != nil {
			since = e.Since.Format("15:04:05")
		}
		if e.Device != nil {
			where = fmt.Sprintf("slab %d + %d", *e.Device, *e.Offset)
		}
		stored, slot := fmt.Sprintf("%d raw", e.StoredBytes), fmt.Sprint(e.SlotBytes)
		switch {
		case e.StoredBytes == 0: // a row in pages that could not be read
			stored, slot = "unknown", "unknown"
		case e.Compressed:
			stored = fmt.Sprint(e.StoredBytes)
		}
		frequency, score, victim := "-", "-", "-" // a policy that explains nothing
		if p := e.Policy; p != nil {
			frequency, score, victim = fmt.Sprintf("%.1f", p.Frequency), fmt.Sprintf("%.4g", p.Score), fmt.Sprintf("%.4g", p.Victim)
		}
		if v := e.Eviction; v != nil {
			withdrawn = fmt.Sprintf("%s, cached for %.1f s", v.At.Format("15:04:05.000"), v.AgeSeconds)
			if v.By != "" {
				withdrawn += ", by " + v.By
			}
		}
		t.AppendRow(table.Row{e.Row, where, since, why, stored, slot, frequency, score, victim, withdrawn})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}
