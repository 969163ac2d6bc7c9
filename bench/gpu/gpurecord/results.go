package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/device/cuda"
)

// results are the files of a folder that steps wrote, by name.
type results struct {
	from  string
	files map[string][]byte
}

// What begins a folder of results.
const (
	sourcesFile = "sources.json"
	machineFile = "machine.json"
)

// Machine is where steps ran.
type Machine struct {
	Device string `json:"device"`
	Driver string `json:"driver"`
	GPUs   int    `json:"gpus"`
}

// begin makes a folder of results of a bundle on this machine, or says why the one that is there is of others.
func begin(dir, bundle string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	m, err := thisMachine()
	if err != nil {
		return err
	}
	machine, err := json.Marshal(m)
	if err != nil {
		return err
	}
	sources, err := os.ReadFile(filepath.Join(bundle, sourcesFile))
	if err != nil {
		return err
	}
	for name, want := range map[string][]byte{sourcesFile: sources, machineFile: append(machine, '\n')} {
		path := filepath.Join(dir, name)
		have, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = os.WriteFile(path, want, 0o644)
		case err == nil && !bytes.Equal(have, want):
			err = fmt.Errorf("%s (%s) is of other code or another machine (%s here): take another folder", path, bytes.TrimSpace(have), bytes.TrimSpace(want))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func thisMachine() (m Machine, err error) {
	devices, err := cuda.Open(1)
	if err != nil {
		return m, err
	}
	m.Device, m.GPUs = devices[0].Info().Name, cuda.Count()
	if err := devices[0].Close(); err != nil {
		return m, err
	}
	m.Driver = "unknown"
	if version, err := exec.Command("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").Output(); err == nil {
		m.Driver, _, _ = strings.Cut(strings.TrimSpace(string(version)), "\n")
	}
	return m, nil
}

// readResults reads a folder, or a .tar.gz of one.
func readResults(path string) (results, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return readFolder(path)
	}
	r := results{path, map[string][]byte{}}
	f, err := os.Open(path)
	if err != nil {
		return r, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return r, fmt.Errorf("%s must be a folder of results or a .tar.gz of one: %w", path, err)
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", path, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if r.files[filepath.Base(h.Name)], err = io.ReadAll(t); err != nil {
			return r, fmt.Errorf("%s: %s: %w", path, h.Name, err)
		}
	}
}

func readFolder(dir string) (results, error) {
	r := results{dir, map[string][]byte{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return r, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if r.files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return r, err
		}
	}
	return r, nil
}

// decode reads one of the JSON files.
func (r results) decode(name string, to any) error {
	b, ok := r.files[name]
	if !ok {
		return fmt.Errorf("%s has no %s: no results of a bundle", r.from, name)
	}
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("%s: %s: %w", r.from, name, err)
	}
	return nil
}

// named returns what begins the names of the files with an extension: packages, and packages with a tool, numbers apart.
func (r results) named(extension string) (names []string) {
	for name := range r.files {
		if base, ok := strings.CutSuffix(name, extension); ok {
			names = append(names, base)
		}
	}
	slices.Sort(names)
	return names
}

// logs returns the logs of tests: PACKAGE.N.log and PACKAGE.TOOL.N.log.
func (r results) logs() (logs []testLog, err error) {
	for _, base := range r.named(".log") {
		parts := strings.Split(base, ".")
		tool := ""
		switch len(parts) {
		case 2:
		case 3:
			tool = parts[1]
		default:
			return nil, fmt.Errorf("%s: log (%s.log) must be named PACKAGE.N.log or PACKAGE.TOOL.N.log", r.from, base)
		}
		logs = append(logs, parseLog(parts[0], tool, r.files[base+".log"]))
	}
	return logs, nil
}
