package experiment

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/internal/atomicfile"
	"github.com/tensorcache/tensorcache/internal/filelock"
)

// Cell is one measurement of a sweep. Its JSON form is a line of DIR/cells.jsonl.
type Cell struct {
	// Config is what `cachebench run --config` takes to measure the cell again.
	Config map[string]any `json:"config"`
	Seed   uint64         `json:"seed"`
	// Seconds is what measuring took.
	Seconds float64 `json:"seconds"`
	Result  *Result `json:"result"`
}

// Point is a cell's place in the grid.
type Point struct {
	Policy, Budget, Codec, HostTier string
	Seed                            uint64
}

func (p Point) String() string {
	return fmt.Sprintf("%s, %s, %s, %s, seed %d", p.Policy, p.Budget, p.Codec, p.HostTier, p.Seed)
}

// Point returns where the cell lies.
func (c *Cell) Point() Point {
	text := func(key string) string { s, _ := c.Config[key].(string); return s }
	return Point{text("policy"), text("budget"), text("codec"), text("host_tier"), c.Seed}
}

var errNoCell = errors.New("must be a JSON object: a sweep's cell, or what run --json prints, with at least one lookup")

// UnmarshalJSON reads a cell. What `cachebench run --json` prints is read as a cell without Config. Keys that this version does not know
// are passed over. Figures that are out of range are errors.
func (c *Cell) UnmarshalJSON(b []byte) error {
	type fields Cell // without this method
	var keys struct{ Result, Results, Cache, Workload json.RawMessage }
	if json.Unmarshal(b, &keys) != nil {
		return errNoCell
	}
	var read fields
	into := any(&read)
	switch {
	case keys.Result != nil:
	case keys.Results != nil && keys.Cache != nil && keys.Workload != nil:
		read.Result = &Result{}
		into = read.Result
	default:
		return errNoCell
	}
	if err := json.Unmarshal(b, into); err != nil {
		return err
	}
	if read.Result == nil || read.Result.Results.Lookups == 0 {
		return errNoCell
	}
	*c = Cell(read)
	return c.Result.validate()
}

func (r *Result) validate() error {
	q, u := &r.Results, &r.Uncompressed
	values := []Range{
		Share("hit_ratio", q.HitRatio), Share("uncompressed.hit_ratio", u.HitRatio), Positive("lookups", q.Lookups), Positive("misses", q.Misses),
		Positive("budget_bytes", r.Cache.BudgetBytes), Positive("host_bytes_moved", q.HostBytesMoved),
		Positive("uncompressed.host_bytes_moved", u.HostBytesMoved), Positive("batch_latency_ms.p50", q.BatchLatency.P50),
		Positive("batch_latency_ms.p95", q.BatchLatency.P95), Positive("batch_latency_ms.p99", q.BatchLatency.P99),
	}
	for _, reason := range slices.Sorted(maps.Keys(r.MissesByReason)) {
		values = append(values, Positive("misses_by_reason."+reason, r.MissesByReason[reason]))
	}
	return CheckRanges(values...)
}

// Range is a figure that must be 0 to most.
type Range struct {
	name        string
	value, most float64
}

// Share is the range of ratios.
func Share(name string, x float64) Range { return Range{name, x, 1} }

// Positive is the range of figures without a bound of their own: what plots can hold.
func Positive[T int | int64 | float64](name string, x T) Range {
	return Range{name, float64(x), math.MaxFloat32}
}

// CheckRanges reports all figures that are out of range.
func CheckRanges(values ...Range) error {
	var errs []error
	for _, v := range values {
		if !(v.value >= 0 && v.value <= v.most) {
			errs = append(errs, fmt.Errorf("%s (%g) must be 0 to %.3g", v.name, v.value, v.most))
		}
	}
	return errors.Join(errs...)
}

// GroupBy returns the values that have a key in common, and the keys in the order of their first values.
func GroupBy[V any, K comparable](all []V, key func(*V) K) (order []K, groups map[K][]*V) {
	groups = map[K][]*V{}
	for i := range all {
		k := key(&all[i])
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], &all[i])
	}
	return order, groups
}

// Files of a sweep's directory.
const (
	cellsFile = "cells.jsonl"
	csvFile   = "cells.csv"
	sweepFile = "sweep.json"
)

// csvColumns are the columns of cells.csv, and where the JSON of a cell has their values.
var csvColumns = strings.Fields(`policy:config.policy budget:config.budget codec:config.codec host_tier:config.host_tier seed:seed seconds:seconds
	chosen_codec:result.cache.codec compression_ratio:result.cache.compression_ratio budget_bytes:result.cache.budget_bytes
	metadata_bytes:result.cache.metadata_bytes payload_bytes:result.cache.payload_bytes host_bytes:result.cache.host_bytes
	rows_cached:result.cache.rows_cached lookups:result.results.lookups hits:result.results.hits hit_ratio:result.results.hit_ratio
	host_bytes_moved:result.results.host_bytes_moved lookups_per_second:result.results.lookups_per_second
	batch_latency_ms_p50:result.results.batch_latency_ms.p50 batch_latency_ms_p95:result.results.batch_latency_ms.p95
	batch_latency_ms_p99:result.results.batch_latency_ms.p99 uncompressed_rows_cached:result.uncompressed.rows_cached
	uncompressed_hit_ratio:result.uncompressed.hit_ratio uncompressed_host_bytes_moved:result.uncompressed.host_bytes_moved
	mismatches:result.mismatches`)

// writeCSV writes the figures of the cells as a table for spreadsheets.
func writeCSV(dir string, cells []Cell) error {
	row := make([]string, len(csvColumns))
	for i, c := range csvColumns {
		row[i], _, _ = strings.Cut(c, ":")
	}
	table := [][]string{row}
	for i := range cells {
		b, err := json.Marshal(&cells[i])
		if err != nil {
			return err
		}
		row := make([]string, len(csvColumns))
		for k, c := range csvColumns {
			_, path, _ := strings.Cut(c, ":")
			value := json.RawMessage(b)
			for key := range strings.SplitSeq(path, ".") {
				var object map[string]json.RawMessage
				if err := json.Unmarshal(value, &object); err != nil {
					return err
				}
				value = object[key]
			}
			row[k] = strings.Trim(string(value), `"`)
		}
		table = append(table, row)
	}
	var b bytes.Buffer
	if err := csv.NewWriter(&b).WriteAll(table); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, csvFile), b.Bytes())
}

// ReadCells reads a sweep's file of cells. torn is the number of bytes at its end that are part of a line only.
func ReadCells(path string) (cells []Cell, torn int64, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, fmt.Errorf("sweep: %w", err)
	}
	for n, at := 1, 0; at < len(b); n++ {
		line, rest, whole := bytes.Cut(b[at:], []byte{'\n'})
		var c Cell
		err := json.Unmarshal(line, &c)
		if len(rest) == 0 && (err != nil || !whole) {
			return cells, int64(len(b) - at), nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("sweep: %s:%d: byte %d: %w", path, n, at, err)
		}
		at += len(line) + 1
		cells = append(cells, c)
	}
	return cells, 0, nil
}

// openCells opens the file of cells for appending, repairs what an interrupt or a full disk left of a last line, and returns
// the cells that are finished.
func openCells(dir string, notice func(string)) (f *os.File, cells []Cell, err error) {
	path := filepath.Join(dir, cellsFile)
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return nil, nil, fmt.Errorf("sweep: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := filelock.Lock(f); err != nil {
		return nil, nil, fmt.Errorf("sweep: %s is in use by another sweep: %w", dir, err)
	}
	cells, torn, err := ReadCells(path)
	if err != nil {
		return nil, nil, err
	}
	if torn > 0 {
		size, err := f.Seek(0, io.SeekEnd)
		if err == nil {
			err = f.Truncate(size - torn)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("sweep: %w", err)
		}
		notice(fmt.Sprintf("%s: %d bytes of an unfinished last line are removed; its cell is measured again", path, torn))
	}
	return f, cells, nil
}

// appendCell adds a finished cell. When it returns nil, the cell survives a crash.
func appendCell(f *os.File, c *Cell) error {
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("sweep: cell %v: %w", c.Point(), err)
	}
	return appendTo(f, append(line, '\n'))
}

// appendTo appends to a file all of b, on disk, or nothing. Errors name the file.
func appendTo(f *os.File, b []byte) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		if err = write(f, b); err == nil {
			err = f.Sync()
		}
		if err != nil {
			f.Truncate(size) // else the next sweep does
		}
	}
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

var write = func(f *os.File, b []byte) error { // tests have one that fails
	_, err := f.Write(b)
	return err
}

// Median returns the middle of the values, or the mean of the two middle ones; 0 of none. It sorts them.
func Median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}
