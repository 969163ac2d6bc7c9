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
	Cells       []Cell
	Simulations []SimulationFile
	Curves      []MissRatioCurve
	Codecs      []CodecTable
	// Files are those that something was read from, Problems what could not be read and why.
	Files    []File
	Problems []Problem
}

// File is a result file.
type File struct{ Name, Holds string }

// Problem is a file, or a part of it, that is not in the report.
type Problem struct{ Name, Reason string }

// Cell is one measured run: a line of a sweep's cells.jsonl, or what run --json printed.
type Cell struct {
	File   string            `json:"-"`
	Config map[string]any    `json:"config"` // nil for a run
	Seed   uint64            `json:"seed"`
	Result experiment.Result `json:"result"`
}

// SimulationFile is what simulate --json printed.
type SimulationFile struct {
	File   string
	Points []sim.Result
}

// MissRatioCurve is what simulate --mrc --json printed.
type MissRatioCurve struct {
	File   string          `json:"-"`
	Trace  string          `json:"trace"`
	Method string          `json:"method"`
	Error  json.RawMessage `json:"error"` // a number or a text
	Points []CurvePoint    `json:"points"`
}

// CurvePoint is the miss ratio at a size.
type CurvePoint struct {
	CacheBytes    float64 `json:"cache_bytes"`
	CacheObjects  float64 `json:"cache_objects"`
	MissRatio     float64 `json:"miss_ratio"`
	ByteMissRatio float64 `json:"byte_miss_ratio"`
}

// inObjects says that the curve is of objects of unit size.
func (m *MissRatioCurve) inObjects() bool {
	return !slices.ContainsFunc(m.Points, func(p CurvePoint) bool { return p.CacheBytes != 0 && p.CacheBytes != p.CacheObjects })
}

func (m *MissRatioCurve) size(p CurvePoint) float64 {
	if m.inObjects() {
		return p.CacheObjects
	}
	return p.CacheBytes
}

// CodecTable is what compress --json printed.
type CodecTable struct {
	File   string
	Codecs []experiment.CodecResult
}

// maxFile keeps a trace that lies among the results from being read into memory.
const maxFile = 256 << 20

// ErrNoResults is returned by ReadResults for a folder without any result.
var ErrNoResults = errors.New("report: no result in the folder")

// ReadResults reads every result file of a folder, but not of the folders in it. Names in skip are passed over. A file that
// holds no result is a problem, not an error.
func ReadResults(dir string, skip ...string) (*Results, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	r := &Results{}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || slices.Contains(skip, name) || twin(entries, name) {
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

// twin says that a file is a sweep's grid or table of cells, of which cells.jsonl has all.
func twin(entries []os.DirEntry, name string) bool {
	return (name == "cells.csv" || name == "sweep.json") && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "cells.jsonl" })
}

func (r *Results) problem(name string, err error) {
	r.Problems = append(r.Problems, Problem{name, strings.ReplaceAll(err.Error(), "\n", "; ")})
}

func (r *Results) read(path, name string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return unwrapPath(err)
	case !info.Mode().IsRegular(): // a pipe would block
		return errors.New("must be a file")
	}
	ext := strings.ToLower(filepath.Ext(name))
	if ext != ".json" && ext != ".jsonl" {
		return errors.New("must be a .json or .jsonl file")
	}
	if info.Size() > maxFile {
		return fmt.Errorf("file (%d bytes) must be at most %d", info.Size(), maxFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return unwrapPath(err)
	}
	if ext == ".jsonl" {
		return r.addLines(name, b)
	}
	return r.add(name, b)
}

func unwrapPath(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// addLines reads a sweep's cells. A line that is none, such as the torn last one of an interrupted sweep, is a problem; the
// others count.
func (r *Results) addLines(name string, b []byte) error {
	cells := 0
	for i, line := range bytes.Split(b, []byte{'\n'}) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var c Cell
		var keys map[string]json.RawMessage
		err := decodeOne(line, &keys)
		if err == nil && keys["result"] == nil {
			err = errors.New("must be a cell of a sweep, with a result")
		}
		if err == nil {
			err = decodeOne(line, &c)
		}
		if err == nil {
			err = c.validate()
		}
		if err != nil {
			r.problem(name, fmt.Errorf("line %d: %w", i+1, err))
			continue
		}
		c.File = name
		r.Cells = append(r.Cells, c)
		cells++
	}
	if cells > 0 {
		r.Files = append(r.Files, File{name, "sweep, " + plural(cells, "cell", "cells")})
		return nil
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return errors.New("must hold a cell: empty")
	}
	return nil // its lines are the problems
}

// add reads one JSON value and finds out by its keys what it is.
func (r *Results) add(name string, b []byte) error {
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return errors.New("must hold a JSON value: empty")
	}
	var holds string
	var err error
	if b[0] == '[' {
		var elements []json.RawMessage
		if err := decodeOne(b, &elements); err != nil {
			return err
		}
		if len(elements) == 0 {
			return errors.New("must hold a result: empty list")
		}
		holds, err = r.addList(name, b, elements)
	} else {
		holds, err = r.addObject(name, b)
	}
	if err == nil {
		r.Files = append(r.Files, File{name, holds})
	}
	return err
}

var errUnknown = errors.New("must be what run, sweep, simulate or compress print with --json")

func (r *Results) addList(name string, b []byte, elements []json.RawMessage) (string, error) {
	var keys map[string]json.RawMessage
	if json.Unmarshal(elements[0], &keys) != nil {
		return "", errUnknown
	}
	has := func(key string) bool { return keys[key] != nil }
	switch {
	case has("result") && has("config"):
		for i, e := range elements {
			c := Cell{File: name}
			err := decodeOne(e, &c)
			if err == nil {
				err = c.validate()
			}
			if err != nil {
				return "", fmt.Errorf("element %d: %w", i, err)
			}
			r.Cells = append(r.Cells, c)
		}
		return "sweep, " + plural(len(elements), "cell", "cells"), nil
	case has("points"):
		for i, e := range elements {
			if err := r.addCurve(name, e); err != nil {
				return "", fmt.Errorf("element %d: %w", i, err)
			}
		}
		return plural(len(elements), "miss-ratio curve", "miss-ratio curves"), nil
	case has("policy") && has("miss_ratio"):
		s := SimulationFile{File: name}
		if err := decodeOne(b, &s.Points); err != nil {
			return "", err
		}
		for i := range s.Points {
			if err := validPoint(&s.Points[i]); err != nil {
				return "", fmt.Errorf("element %d: %w", i, err)
			}
		}
		r.Simulations = append(r.Simulations, s)
		return "simulation, " + plural(len(s.Points), "point", "points"), nil
	case has("codec") && has("round_trip"):
		t := CodecTable{File: name}
		if err := decodeOne(b, &t.Codecs); err != nil {
			return "", err
		}
		for i, c := range t.Codecs {
			if err := atLeastZero("ratio", c.Ratio, "encode_gb_per_second", c.EncodeGBPerSecond, "decode_gb_per_second", c.DecodeGBPerSecond); err != nil {
				return "", fmt.Errorf("element %d: %w", i, err)
			}
		}
		r.Codecs = append(r.Codecs, t)
		return plural(len(t.Codecs), "codec", "codecs"), nil
	}
	return "", errUnknown
}

func (r *Results) addObject(name string, b []byte) (string, error) {
	var keys map[string]json.RawMessage
	if err := decodeOne(b, &keys); err != nil {
		return "", err
	}
	has := func(key string) bool { return keys[key] != nil }
	switch {
	case has("points"):
		return "miss-ratio curve", r.addCurve(name, b)
	case has("result") && has("config"):
		return r.addList(name, b, []json.RawMessage{b})
	case has("results") && has("cache") && has("workload"):
		c := Cell{File: name}
		if err := decodeOne(b, &c.Result); err != nil {
			return "", err
		}
		if err := c.validate(); err != nil {
			return "", err
		}
		r.Cells = append(r.Cells, c)
		return "run", nil
	}
	return "", errUnknown
}

func (r *Results) addCurve(name string, b []byte) error {
	c := MissRatioCurve{File: name}
	if err := decodeOne(b, &c); err != nil {
		return err
	}
	if len(c.Points) == 0 {
		return errors.New("points (none) must be at least one")
	}
	for i, p := range c.Points {
		if err := errors.Join(atLeastZero("cache_bytes", p.CacheBytes, "cache_objects", p.CacheObjects), share("miss_ratio", p.MissRatio), share("byte_miss_ratio", p.ByteMissRatio)); err != nil {
			return fmt.Errorf("point %d: %w", i, err)
		}
	}
	r.Curves = append(r.Curves, c)
	return nil
}
