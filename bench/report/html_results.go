package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/sim"
)

// Results is what the result files of a folder hold, in the order of their names.
type Results struct {
	Cells     []Cell
	Simulated []SimulatedPoint
	Curves    []MissRatioCurve
	Codecs    []Codec
	Plans     []Planned
	// Files are those that something was read from, Problems what could not be read and why.
	Files    []File
	Problems []Problem
}

// File is a result file.
type File struct{ Name, Holds string }

// Problem is a file, or a part of it, that is not in the report.
type Problem struct {
	Name, Reason string
	// Damaged says that a result is lost. Otherwise the file is none, or its last line is that of an interrupted sweep.
	Damaged bool
}

// harmless is the reason of a problem that loses no result.
type harmless struct{ error }

// Cell is one measured run: a line of a sweep's cells.jsonl, or what run --json printed, which has no Config.
type Cell struct {
	experiment.Cell
	File string
}

// SimulatedPoint is an element of what simulate --json printed.
type SimulatedPoint struct {
	sim.Result
	File string
}

// MissRatioCurve is what simulate --mrc --json printed.
type MissRatioCurve struct {
	sim.Curve
	File string
}

// Codec is an element of what compress --json printed.
type Codec struct {
	experiment.CodecResult
	File string
}

// maxFile keeps a trace that lies among the results from being read into memory.
const maxFile = 256 << 20

// ErrNoResults is returned by ReadResults for a folder without any result.
var ErrNoResults = errors.New("report: no result in the folder")

// ReadResults reads every result file of a folder. It passes over folders in it, hidden files and pages. A file that holds no result is a
// problem, not an error.
func ReadResults(dir string) (*Results, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	r := &Results{}
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name })
	}
	for _, e := range entries {
		name := e.Name()
		ext := strings.ToLower(filepath.Ext(name))
		switch {
		case e.IsDir(), strings.HasPrefix(name, "."), ext == ".html", ext == ".htm":
			continue
		case (name == "cells.csv" || name == "sweep.json") && has("cells.jsonl"): // a sweep's, of which cells.jsonl has all
			continue
		}
		if err := r.read(filepath.Join(dir, name), name); err != nil {
			r.problem(name, err)
		}
	}
	if len(r.Files) == 0 {
		if len(r.Problems) > 0 {
			p := r.Problems[0]
			return nil, fmt.Errorf("%w: %s: %d read in vain, first %s: %s", ErrNoResults, dir, len(r.Problems), p.Name, p.Reason)
		}
		return nil, fmt.Errorf("%w: %s: empty", ErrNoResults, dir)
	}
	return r, nil
}

func (r *Results) problem(name string, err error) {
	_, ok := errors.AsType[harmless](err)
	r.Problems = append(r.Problems, Problem{name, strings.ReplaceAll(err.Error(), "\n", "; "), !ok})
}

func (r *Results) read(path, name string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return unwrapPath(err)
	case !info.Mode().IsRegular(): // a pipe would block
		return harmless{errors.New("must be a file")}
	}
	ext := strings.ToLower(filepath.Ext(name))
	if ext != ".json" && ext != ".jsonl" {
		return harmless{errors.New("must be a .json or .jsonl file")}
	}
	if info.Size() > maxFile {
		return fmt.Errorf("file (%d bytes) must be at most %d", info.Size(), maxFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return unwrapPath(err)
	}
	return r.add(name, b, ext == ".jsonl")
}

func unwrapPath(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// kinds are what a value may be, told by its keys. add adds it to the results; one, or before, the number and many, say what a file holds.
var kinds = []struct {
	keys              []string
	one, before, many string
	add               func(r *Results, file string, b []byte) error
}{
	{[]string{"points"}, "miss-ratio curve", "", "miss-ratio curves", adds(validCurve, func(r *Results, file string, v sim.Curve) {
		r.Curves = append(r.Curves, MissRatioCurve{v, file})
	})},
	{[]string{"result", "config"}, "sweep, 1 cell", "sweep, ", "cells", adds(nil, addCell)},
	{[]string{"results", "cache", "workload"}, "run", "", "runs", adds(nil, addCell)},
	{[]string{"policy", "miss_ratio"}, "simulation, 1 point", "simulation, ", "points", adds(validPoint, func(r *Results, file string, v sim.Result) {
		r.Simulated = append(r.Simulated, SimulatedPoint{v, file})
	})},
	{[]string{"codec", "round_trip"}, "1 codec", "", "codecs", adds(validCodec, func(r *Results, file string, v experiment.CodecResult) {
		r.Codecs = append(r.Codecs, Codec{v, file})
	})},
	{[]string{"plans", "target_hit_ratio"}, "plan", "", "plans", adds(validPlan, func(r *Results, file string, v experiment.PlanResult) {
		r.Plans = append(r.Plans, Planned{v, file})
	})},
}

// adds returns what decodes a value, checks it, and puts it into the results.
func adds[T any](check func(*T) error, put func(*Results, string, T)) func(*Results, string, []byte) error {
	return func(r *Results, file string, b []byte) error {
		var v T
		err := json.Unmarshal(b, &v) // keys that this report does not know are passed over: newer results have more of them
		if err == nil && check != nil {
			err = check(&v)
		}
		if err == nil {
			put(r, file, v)
		}
		return err
	}
}

func addCell(r *Results, file string, c experiment.Cell) { r.Cells = append(r.Cells, Cell{c, file}) }

func validPoint(p *sim.Result) error {
	return experiment.CheckRanges(experiment.Share("miss_ratio", p.MissRatio), experiment.Share("byte_miss_ratio", p.ByteMissRatio), experiment.Positive("cache_objects", p.CacheObjects),
		experiment.Positive("cache_bytes", p.CacheBytes), experiment.Positive("requests_per_second", p.RequestsPerSecond))
}

func validCodec(c *experiment.CodecResult) error {
	return experiment.CheckRanges(experiment.Positive("ratio", c.Ratio), experiment.Positive("encode_gb_per_second", c.EncodeGBPerSecond), experiment.Positive("decode_gb_per_second", c.DecodeGBPerSecond))
}

func validCurve(m *sim.Curve) error {
	if len(m.Points) == 0 {
		return errors.New("points (none) must be at least one")
	}
	for i, p := range m.Points {
		err := experiment.CheckRanges(experiment.Positive("cache_bytes", p.CacheBytes), experiment.Positive("cache_objects", p.CacheObjects), experiment.Share("miss_ratio", p.MissRatio), experiment.Share("byte_miss_ratio", p.ByteMissRatio))
		if err != nil {
			return fmt.Errorf("point %d: %w", i, err)
		}
	}
	return nil
}

// add reads the values of a file: lines, the elements of one list, or one object. A value that cannot be read is a problem; the others
// count.
func (r *Results) add(name string, b []byte, lines bool) error {
	values, where, first := []json.RawMessage{b}, "", 0
	switch {
	case len(bytes.TrimSpace(b)) == 0:
		return errors.New("must hold a result: empty")
	case lines:
		values, where, first = nil, "line", 1
		for line := range bytes.SplitSeq(b, []byte{'\n'}) {
			values = append(values, line)
		}
	case bytes.TrimSpace(b)[0] == '[':
		where = "element"
		if err := decodeOne(b, &values); err != nil {
			return err
		}
		if len(values) == 0 {
			return errors.New("must hold a result: empty list")
		}
	}
	counts := make([]int, len(kinds))
	for i, value := range values {
		if len(bytes.TrimSpace(value)) == 0 {
			continue
		}
		kind, err := r.addValue(name, value)
		switch {
		case err == nil:
			counts[kind]++
		case lines && i == len(values)-1 && !json.Valid(value): // the others end in a newline
			r.problem(name, harmless{fmt.Errorf("line %d: is cut short, as by an interrupt: %w", i+first, err)})
		case where != "":
			r.problem(name, fmt.Errorf("%s %d: %w", where, i+first, err))
		default:
			return err
		}
	}
	for i, k := range kinds {
		if n := counts[i]; n == 1 {
			r.Files = append(r.Files, File{name, k.one})
		} else if n > 1 {
			r.Files = append(r.Files, File{name, k.before + count(int64(n)) + " " + k.many})
		}
	}
	return nil
}

var errUnknown = harmless{errors.New("must be what run, sweep, simulate, compress or plan print with --json")}

// addValue finds out what a value is, and adds it.
func (r *Results) addValue(file string, b []byte) (kind int, err error) {
	var keys map[string]json.RawMessage
	if err := decodeOne(b, &keys); err != nil {
		return 0, err
	}
	for i, k := range kinds {
		if !slices.ContainsFunc(k.keys, func(key string) bool { return keys[key] == nil }) {
			return i, k.add(r, file, b)
		}
	}
	return 0, errUnknown
}

// decodeOne reads one JSON value.
func decodeOne(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("must hold one JSON value: %w", err)
	}
	return nil
}
