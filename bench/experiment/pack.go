package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/safetensors"
	"github.com/tensorcache/tensorcache/internal/scratch"
	"github.com/tensorcache/tensorcache/internal/tablefile"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
	"github.com/tensorcache/tensorcache/pages/model"
)

// PackConfig says what to pack into pages, and how.
type PackConfig struct {
	// Features is a table file, or a directory of page files or a cluster, whose pages are then copied as they are.
	Features string
	// Out is the directory of page files to make, or the address of a cluster: redis://HOST:PORT[,HOST:PORT…][/TABLE], or rediss.
	Out string
	// Name is the table's name; "" for that of the address, or else of the file.
	Name  string
	Codec string
	// Page is the most bytes of a page, as a size; "" for pages.DefaultPageBytes.
	Page string
	// Stage is the second stage, as in pages.PackOptions.
	Stage string
	// Order is "degree", with a Graph, "frequency", with IDs, or a file of row numbers; "" for the order of the numbers.
	Order, Graph, IDs string
	// Scratch is the folder for the files of Order, 8 to 12 bytes a row; "" for Out's, and of a cluster for TMPDIR or, if that lies in memory, /var/tmp.
	Scratch string
	Workers int
	Seed    uint64
	// Base is a packed model that a model is stored as the difference from; of KeepBaseEvery models in a row one is stored as a whole, 0: none. Both are of models only.
	Base          string
	KeepBaseEvery int
	// Force goes on where memory may not suffice, and replaces another table.
	Force bool
}

// maximumPackers is the most goroutines that encode.
const maximumPackers = 8

// Packed is what a generation of pages is. Its JSON form is what `cachebench pack --json` prints.
type Packed struct {
	TableInfo
	Out        string `json:"out"`
	Generation uint64 `json:"generation"`
	Codec      string `json:"codec"`
	// RawRows did not shrink.
	RawRows     int64 `json:"raw_rows"`
	StoredBytes int64 `json:"stored_bytes"`
	// PageBytes is the most that pages were to have, LongestPage the longest, PagesBytes all of them.
	PageBytes   int    `json:"page_bytes"`
	Pages       uint32 `json:"pages"`
	LongestPage int    `json:"longest_page"`
	PagesBytes  int64  `json:"pages_bytes"`
	// Ratio is the raw bytes of the table ÷ PagesBytes.
	Ratio   float64 `json:"ratio"`
	Stage   string  `json:"stage"`
	Ordered bool    `json:"ordered"`
	// ResumedRows were packed by an earlier run.
	ResumedRows int64   `json:"resumed_rows,omitempty"`
	Seconds     float64 `json:"seconds"`
	// Dropped are earlier generations that were deleted from a cluster, as nobody reads them.
	Dropped []uint64 `json:"dropped_generations,omitempty"`
	// Choice is why codec "auto" picked the codec, unless it was named or an interrupted pack went on with its own.
	Choice *registry.Choice `json:"codec_choice,omitempty"`
}

// percentStep has a stage of a hundred steps make those that are due.
type percentStep struct {
	p    Progress
	done int
}

func (s *percentStep) to(done, all int64) {
	for all > 0 && int64(s.done) < done*100/all {
		s.p.Step()
		s.done++
	}
}

// Pack packs a table into pages. If it fails for lack of space or is interrupted, the same call goes on where it was.
func Pack(ctx context.Context, cfg PackConfig, progress Progress) (_ *Packed, err error) {
	start := time.Now()
	if info, err := os.Stat(cfg.Out); cfg.Out == "" || err == nil && !info.IsDir() {
		return nil, fmt.Errorf("--out (%s) must be a directory, one to be made, or the address of a cluster", cfg.Out)
	}
	if cfg.Base != "" || cfg.KeepBaseEvery != 0 {
		return nil, fmt.Errorf("--base and --keep-base-every are of models (DIR or FILE.safetensors), and %s is one table of rows", cfg.Features)
	}
	if cluster.IsAddress(cfg.Features) {
		return cfg.copy(ctx, start, progress)
	}
	if _, err := os.Stat(cfg.Features); err != nil && strings.Contains(cfg.Features, ",") {
		return nil, fmt.Errorf("features (%s) must be one table", cfg.Features)
	}
	if info, err := os.Stat(cfg.Features); err == nil && info.IsDir() && !tablefile.IsCheckpoint(cfg.Features) {
		return cfg.copy(ctx, start, progress)
	}
	o := pages.PackOptions{Name: cfg.Name, Codec: cfg.Codec, Stage: cfg.Stage, Seed: cfg.Seed, Workers: cfg.Workers}
	if err := noUpdates(cfg.Out); err != nil {
		return nil, err
	}
	if info, err := os.Stat(cfg.Scratch); cfg.Scratch != "" && (cfg.Order == "" || err != nil || !info.IsDir()) {
		return nil, fmt.Errorf("--scratch (%s) must be a folder that there is, and be given with --order", cfg.Scratch)
	}
	if cfg.Workers < 0 || cfg.Workers > maximumPackers {
		return nil, fmt.Errorf("--workers (%d) must be 1 to %d, or 0 for one a processor", cfg.Workers, maximumPackers)
	}
	if o.PageBytes, err = cfg.pageBytes(); err != nil {
		return nil, err
	}
	first, err := tablefile.Open(cfg.Features)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	o.DType = first.DType()
	file, array, _ := strings.Cut(filepath.Base(first.Name()), ":")
	if _, sharded := first.(*safetensors.Checkpoint); sharded { // whose tensors may be named like paths
		_, array = safetensors.SplitCheckpoint(cfg.Features)
		file = filepath.Base(strings.TrimSuffix(cfg.Features, ":"+array))
	}
	o.Name = cmp.Or(o.Name, cluster.TableOf(cfg.Out), strings.TrimSuffix(file, filepath.Ext(file)))
	if several, ok := first.(interface{ Stamp() (string, error) }); ok {
		stamp, err := several.Stamp()
		if err != nil {
			return nil, err
		}
		o.SourceKey = array + "\n" + stamp
	} else if info, err := os.Stat(strings.TrimSuffix(first.Name(), ":"+array)); err == nil {
		o.SourceKey = fmt.Sprintf("%s:%s %d %d", file, array, info.Size(), info.ModTime().UnixNano())
	}
	if o.Workers, err = packWorkers(cfg.Workers, int64(first.Rows()), int64(first.RowBytes()), o.PageBytes, cfg.orderMemory(int64(first.Rows())), cfg.Force); err != nil {
		return nil, err
	}
	if cfg.Order != "" {
		if _, ok := first.(pages.RangedSource); !ok {
			return nil, fmt.Errorf("--order (%s) needs a file whose rows can be read in any order, and %s is compressed or in Fortran order: write it anew with np.save or np.savez, np.ascontiguousarray(x)", cfg.Order, cfg.Features)
		}
		progress.Stage("ordering the rows", 0)
	}
	memory := scratch.In(cfg.scratch())
	defer func() { err = errors.Join(err, memory.Close()) }()
	o.Scratch = memory.Bytes
	if o.Order, err = cfg.order(first.Name(), int64(first.Rows()), memory); err != nil {
		return nil, err
	}
	if err := cfg.replaces(ctx, o.Name, first.RowBytes(), first.DType().String()); err != nil {
		return nil, err
	}
	w, err := openWriter(ctx, cfg.Out, o.Name)
	if err != nil {
		return nil, err
	}
	progress.Stage("training the codec", 0)
	resumed := int64(-1)
	percent := percentStep{p: progress}
	o.Progress = func(rows int64) {
		if resumed < 0 {
			resumed = rows
			progress.Stage("packing, percent of the rows", 100)
		}
		percent.to(rows, int64(first.Rows()))
	}
	var choice *registry.Choice
	o.Chosen = func(c registry.Choice) { choice = &c }
	m, err := pages.Pack(ctx, func() (pages.Source, error) { return tablefile.Open(cfg.Features) }, w, o)
	if err != nil {
		return nil, goesOn(err)
	}
	if !cluster.IsAddress(cfg.Out) && model.IsOneTable(cfg.Features) && cfg.Order == "" {
		if err := model.OfTable(ctx, cfg.Features, cfg.Out); err != nil {
			return nil, err
		}
	}
	p := packed(cfg.Out, m, start)
	p.ResumedRows, p.Choice = max(0, resumed), choice
	p.Dropped, err = dropOld(ctx, cfg.Out, m.Name)
	return p, err
}

// replaces refuses to replace a table of another name or form in a directory or a cluster.
func (c *PackConfig) replaces(ctx context.Context, name string, rowBytes int, of string) error {
	if c.Force {
		return nil
	}
	m, err := c.present(ctx, name)
	if m == nil || err != nil { // there is none; what else is wrong, the writer says
		return nil
	}
	if m.Name != name || m.RowBytes != rowBytes || m.DType.String() != of {
		return fmt.Errorf("--out (%s) has table %s, rows of %d B (%s), and the new one is %s, rows of %d B (%s): take another place, or --force to replace it",
			c.Out, m.Name, m.RowBytes, m.DType, name, rowBytes, of)
	}
	return nil
}

// present returns the manifest of the table that Out has, in a cluster of that of this name.
func (c *PackConfig) present(ctx context.Context, name string) (*pages.Manifest, error) {
	if !cluster.IsAddress(c.Out) {
		return pages.ReadManifest(c.Out)
	}
	s, err := OpenCluster(ctx, c.Out, name)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Manifest(), nil
}

// goesOn adds to the error of a full disk what to do.
func goesOn(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("%w; with more space, the same command goes on where it was", err)
	}
	return err
}

// copy packs a table of pages: they are copied as they are.
func (c *PackConfig) copy(ctx context.Context, start time.Time, progress Progress) (*Packed, error) {
	if c.Codec != "" || c.Page != "" || c.Stage != "" || c.Order != "" || c.Scratch != "" || c.Name != "" {
		return nil, fmt.Errorf("--codec, --page, --stage, --order, --scratch and --name mean nothing for %s, whose pages are copied as they are", c.Features)
	}
	if err := noUpdates(c.Out); err != nil {
		return nil, err
	}
	from, err := openStore(ctx, c.Features)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	if err := merged(c.Features); err != nil {
		return nil, err
	}
	of := from.Manifest()
	if err := c.replaces(ctx, of.Name, of.RowBytes, of.DType.String()); err != nil {
		return nil, err
	}
	w, err := openWriter(ctx, c.Out, from.Manifest().Name)
	if err != nil {
		return nil, err
	}
	progress.Stage("copying, percent of the pages", 100)
	percent := percentStep{p: progress}
	m, err := pages.Copy(ctx, from, w, func(n uint32) { percent.to(int64(n), int64(from.Manifest().Pages)) })
	if err != nil {
		return nil, err
	}
	p := packed(c.Out, m, start)
	p.Dropped, err = dropOld(ctx, c.Out, m.Name)
	return p, err
}

func packed(out string, m *pages.Manifest, start time.Time) *Packed {
	p := &Packed{
		TableInfo: TableInfo{Name: m.Name, Rows: m.Rows, RowBytes: m.RowBytes, DType: m.DType.String()},
		Out:       out, Generation: m.Generation, Codec: m.Codec, RawRows: m.RawRows, StoredBytes: m.StoredBytes,
		PageBytes: m.PageBytes, Pages: m.Pages, LongestPage: m.LongestPage, PagesBytes: m.PageTotal, Ratio: ratio(m.Rows*int64(m.RowBytes), m.PageTotal),
		Stage: m.Stage.String(), Ordered: m.Ordered,
	}
	if !start.IsZero() {
		p.Seconds = time.Since(start).Seconds()
	}
	return p
}
