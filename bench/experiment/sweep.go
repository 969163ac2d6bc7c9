package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/pages"
)

// SweepConfig is a grid of runs. Table and graph are made once, the batches once for each seed.
type SweepConfig struct {
	// Config is what the cells have in common. Its Policy, Budget, Codec and HostTier are those of the grid, its Seed the
	// first one.
	Config
	Policies, Budgets, Codecs, HostTiers []string
	// Seeds is how often the grid is measured, with seeds Config.Seed, Config.Seed + 1 and so on for batches and caches.
	// The generated table and graph are those of the first seed.
	Seeds int
	// Dir is where the results go. A sweep that is there already is continued.
	Dir string
}

// SweepProgress is told of a sweep.
type SweepProgress interface {
	Progress
	// Cells begins the measurements: of total cells, done are in the directory already.
	Cells(done, total int)
	// Done ends a cell; left is about how long the others will take.
	Done(c *Cell, done, total int, left time.Duration)
	// Notice is something that the user must know.
	Notice(text string)
}

// Validate reports all faults of the grid and its cells at once, each once.
func (s *SweepConfig) Validate() error {
	var f faults.List
	f.If(s.Seeds < 1, "--seeds (%d) must be at least 1", s.Seeds)
	// Seed 0 of the data stands for the cell's own seed.
	f.If(s.Seeds > 1 && s.dataSeed() == 0, "--seed (0) must be at least 1 with --seeds (%d)", s.Seeds)
	f.If(s.Dir == "", "sweep: directory (\"\") must not be empty")
	for _, a := range s.axes() {
		f.If(len(a.values) == 0, "--%s () must have at least one value", a.flag)
		for i, v := range a.values {
			f.If(slices.Contains(a.values[:i], v), "--%s (%s) must not have a value twice: %s", a.flag, strings.Join(a.values, ","), v)
		}
	}
	for _, p := range s.points() {
		if c := s.at(p); p.Seed == s.Seed {
			f.Add(c.Validate())
		}
	}
	return once(f.Err())
}

// once returns the lines of an error, each once: cells share most of their faults.
func once(err error) error {
	if err == nil {
		return nil
	}
	lines, _ := GroupBy(strings.Split(err.Error(), "\n"), func(line *string) string { return *line })
	return errors.New(strings.Join(lines, "\n"))
}

type axis struct {
	flag, key string // by its key the folder's manifest has the values
	values    []string
}

func (s *SweepConfig) axes() []axis {
	return []axis{{"policy", "policy", s.Policies}, {"gpu-memory", "budget", s.Budgets}, {"codec", "codec", s.Codecs}, {"host-tier", "host_tier", s.HostTiers}}
}

// points returns the grid. Seeds come last, so that an interrupted sweep has all of the grid as early as possible.
func (s *SweepConfig) points() (all []Point) {
	for i := range s.Seeds {
		for _, policy := range s.Policies {
			for _, budget := range s.Budgets {
				for _, codec := range s.Codecs {
					for _, tier := range s.HostTiers {
						all = append(all, Point{policy, budget, codec, tier, s.Seed + uint64(i)})
					}
				}
			}
		}
	}
	return all
}

// at returns the config of a cell.
func (s *SweepConfig) at(p Point) Config {
	c := s.Config
	c.Policy, c.Budget, c.Codec, c.HostTier, c.Seed = p.Policy, p.Budget, p.Codec, p.HostTier, p.Seed
	if p.Seed != s.Seed {
		c.DataSeed = s.dataSeed()
	}
	return c
}

// Sweep measures the cells that the directory does not have yet, and returns all of them. Canceling ctx
// ends it; finished cells are kept in any case, and the same config continues with the others. A cell whose budget holds no
// row is left out; the others are measured before the error is returned.
func Sweep(ctx context.Context, s SweepConfig, progress SweepProgress) (cells []Cell, err error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	manifest := s.manifest()
	if err := manifest.check(s.Dir); err != nil { // before anything is touched
		return nil, err
	}
	log, cells, err := openCells(s.Dir, progress.Notice)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	defer func() {
		if failed := writeCSV(s.Dir, cells); failed != nil {
			err = errors.Join(err, fmt.Errorf("sweep: %w", failed))
		}
	}()
	finished := map[Point]bool{}
	plain := map[Point]*Uncompressed{}
	for i := range cells {
		p := cells[i].Point()
		finished[p], plain[p.plain()] = true, &cells[i].Result.Uncompressed
	}
	points := s.points()
	total := len(points)
	points = slices.DeleteFunc(points, func(p Point) bool { return finished[p] })
	progress.Cells(total-len(points), total)
	if len(points) == 0 {
		return cells, nil
	}

	base := &run{cfg: s.Config, progress: progress}
	if err := base.load(); err != nil {
		return cells, err
	}
	manifest["data_checksum"] = base.checksum()
	if err := manifest.check(s.Dir); err != nil {
		return cells, err
	}
	if err := manifest.write(s.Dir); err != nil {
		return cells, err
	}
	var sampled *run
	var failures []error
	for i, p := range points {
		if err := ctx.Err(); err != nil {
			return cells, err
		}
		if sampled == nil || sampled.cfg.Seed != p.Seed {
			next := *base
			next.cfg = s.at(p)
			if err := next.sample(); err != nil {
				return cells, err
			}
			if err := next.record(ctx); err != nil {
				return cells, err
			}
			sampled = &next
		}
		progress.Stage(p.String(), 0)
		c, err := s.measure(ctx, sampled, p, plain)
		if errors.Is(err, cache.ErrBudget) {
			failures = append(failures, fmt.Errorf("sweep: cell %v: %w", p, err))
			continue
		}
		if err != nil {
			return cells, err
		}
		if err := appendCell(log, c); err != nil {
			return cells, err
		}
		cells = append(cells, *c)
		sum := 0.0
		for _, c := range cells {
			sum += c.Seconds
		}
		left := time.Duration(sum / float64(len(cells)) * float64(len(points)-i-1) * float64(time.Second))
		progress.Done(c, len(cells), total, left)
	}
	return cells, errors.Join(failures...)
}

// plain returns the point of the uncompressed cache beside the cell: codec and tier do not matter to it.
func (p Point) plain() Point {
	p.Codec, p.HostTier = "", ""
	return p
}

// measure measures a cell.
func (s *SweepConfig) measure(ctx context.Context, sampled *run, p Point, plain map[Point]*Uncompressed) (*Cell, error) {
	start := time.Now()
	r := *sampled
	r.cfg, r.progress = s.at(p), Quiet{}
	if err := r.fit(); err != nil {
		return nil, err
	}
	res, err := r.result(ctx, plain[p.plain()])
	if err != nil {
		return nil, err
	}
	plain[p.plain()] = &res.Uncompressed
	return &Cell{Config: r.cfg.Settings(), Seed: p.Seed, Seconds: time.Since(start).Seconds(), Result: res}, nil
}

// checksum returns a checksum of everything that was loaded or generated: files may change between the parts of a sweep.
func (r *run) checksum() string {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, r.table.Data)
	if m := r.table.Paged(); m != nil {
		sum = crc32.Update(sum, table, m.Parts[pages.PartIndex].SHA256[:]) // has the checksum of every page
	}
	if r.graph != nil {
		sum = crc32.Update(sum, table, asBytes(r.graph.Indptr))
		sum = crc32.Update(sum, table, asBytes(r.graph.Indices))
	}
	sum = crc32.Update(sum, table, asBytes(r.ids))
	sum = crc32.Update(sum, table, asBytes(r.text))
	return fmt.Sprintf("%08x", sum)
}

func asBytes[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}

// manifest is what makes a sweep, as DIR/sweep.json has it.
type manifest map[string]any

func (s *SweepConfig) manifest() manifest {
	m := manifest(s.Config.Settings())
	for _, a := range s.axes() {
		m[a.key] = a.values
	}
	m["seeds"] = s.Seeds
	return m
}

func (m manifest) write(dir string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, sweepFile), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// check refuses a directory of another sweep, naming what differs.
func (m manifest) check(dir string) error {
	path := filepath.Join(dir, sweepFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if info, err := os.Stat(filepath.Join(dir, cellsFile)); err == nil && info.Size() > 0 {
			return fmt.Errorf("sweep: %s has cells but no %s that says of what", dir, sweepFile)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var there manifest
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // seeds have 64 bits
	if err := d.Decode(&there); err != nil {
		return fmt.Errorf("sweep: %s: must hold one JSON object: %w", path, err)
	}
	var differences []string
	keys := maps.Clone(there)
	maps.Copy(keys, m)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if _, known := m["data_checksum"]; key == "data_checksum" && !known {
			continue
		}
		if a, b := SettingText(there[key]), SettingText(m[key]); a != b {
			name := "--" + strings.ReplaceAll(key, "_", "-")
			switch key {
			case "data_checksum":
				name = "the checksum of table, graph and row numbers"
			case "budget":
				name = "--gpu-memory"
			}
			differences = append(differences, fmt.Sprintf("%s is %s there, %s here", name, a, b))
		}
	}
	if len(differences) == 0 {
		return nil
	}
	return fmt.Errorf("sweep: %s holds another sweep: %s", dir, strings.Join(differences, "; "))
}

// SettingText returns a setting of a config as a flag takes it, also one that was read from JSON.
func SettingText(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	b, err := json.Marshal(v)
	if v == nil || err != nil {
		return "the default"
	}
	return strings.NewReplacer(`"`, "", "[", "", "]", "").Replace(string(b))
}
