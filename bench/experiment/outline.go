package experiment

import (
	"cmp"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/dtype"
)

// exact says whether a plan opens a table as it is.
func (c *Config) exact(rows, rowBytes int) bool {
	m := miniatureOf(int64(rows), int64(rows)*int64(rowBytes), 1, int64(c.planned), 0)
	return m.scale == 1
}

// outline makes table and some, if the run is for a plan and its table too large to be opened. A generated table's rows are alike, so its first ones are some.
func (r *run) outline() (err error) {
	c := &r.cfg
	var of string
	var data []byte
	var form dtype.Type
	rows, rowBytes := int64(0), 0
	switch {
	case c.planned == 0 || c.ColdPages != "" || c.joined != nil:
		return nil
	case c.Features != "":
		r.progress.Stage("reading some of the features", 0)
		r.table, r.some, err = dataset.Outline(c.Features, sampledRows, c.exact)
		return err
	case c.readsText():
		rows, rowBytes, form, of = cmp.Or(c.Rows, workload.NgramRows), workload.NgramRowBytes, workload.Float8Row(workload.NgramElements), "generated"
	default:
		rows, rowBytes, form, of = int64(c.Vertices), 4*defaultColumns, dtype.Float32, "generated"
		if r.graph != nil {
			rows = int64(r.graph.Vertices())
		}
	}
	if c.exact(int(rows), rowBytes) {
		return nil
	}
	if c.readsText() {
		data, err = workload.Float8Rows(sampledRows, workload.NgramElements, c.dataSeed())
	} else {
		data, err = workload.Features(sampledRows, defaultColumns, c.dataSeed())
	}
	r.table = &dataset.Table{Name: of, DType: form, Rows: int(rows), RowBytes: rowBytes}
	r.some = &dataset.Table{Name: of, DType: form, Rows: sampledRows, RowBytes: rowBytes, Data: data}
	return err
}

// suit takes the table's elements for those of another type, and casts them, as flags say.
func (r *run) suit() (err error) {
	c, rows := &r.cfg, r.table.Rows
	t := r.table
	if r.some != nil {
		t = r.some
	}
	if t, err = t.As(c.DType); err == nil {
		t, err = t.Cast(c.Cast)
	}
	if err != nil || r.some == nil {
		r.table = t
		return err
	}
	form := *t
	form.Rows, form.Data = rows, nil
	r.table, r.some = &form, t
	return nil
}
