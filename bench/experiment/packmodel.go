package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
	"github.com/tensorcache/tensorcache/pages/model"
)

// PacksModel says whether a model is packed as a whole: a folder of .safetensors files, or such a file, without names of tensors. A file of one tensor is a table of its rows,
// which opens as a model, too, unless there is a base.
func (c *PackConfig) PacksModel() bool {
	if cluster.IsAddress(c.Features) || !model.Is(c.Features) || model.IsTable(c.Features) {
		return false
	}
	return c.Base != "" || !model.IsOneTable(c.Features)
}

// IsPackedModel says whether a path is the directory of a packed model that is no table.
func IsPackedModel(path string) bool {
	return !cluster.IsAddress(path) && model.IsPacked(path) && !model.IsTable(path)
}

// UnpacksModel says whether the directory of a table is unpacked as the model that it is, too: to a folder.
func UnpacksModel(path, out string) bool {
	if info, err := os.Stat(out); err == nil && !info.IsDir() {
		return false
	}
	return IsPackedModel(path) || filepath.Ext(out) == "" && !cluster.IsAddress(path) && model.IsPacked(path)
}

// PackModel packs the tensors of a model into a directory. If it fails for lack of space or is interrupted, the same call goes on where it was.
func PackModel(ctx context.Context, cfg PackConfig, progress Progress) (*model.Packed, error) {
	if cluster.IsAddress(cfg.Out) {
		return nil, fmt.Errorf("--out (%s) must be a directory for all tensors of %s; one of them, %s:NAME, can be packed into a cluster", cfg.Out, cfg.Features, cfg.Features)
	}
	if cfg.Order != "" || cfg.Scratch != "" || cfg.Name != "" || cfg.Graph != "" || cfg.IDs != "" {
		return nil, fmt.Errorf("--order, --graph, --ids, --scratch and --name are of one table of rows: name the tensor, %s:NAME", cfg.Features)
	}
	o := model.PackOptions{Codec: cfg.Codec, Stage: cfg.Stage, Seed: cfg.Seed, Base: cfg.Base, KeepEvery: cfg.KeepBaseEvery}
	var err error
	if o.PageBytes, err = cfg.pageBytes(); err != nil {
		return nil, err
	}
	if o.Workers, err = packWorkers(cfg.Workers, 0, 1, o.PageBytes, orderMemory{}, cfg.Force); err != nil {
		return nil, err
	}
	o.Progress = stages(progress)
	p, err := model.Pack(ctx, cfg.Features, cfg.Out, o)
	return p, goesOn(err)
}

// stages returns what shows each stage as a hundred steps.
func stages(progress Progress) func(stage string, done, all int64) {
	at, percent := "", percentStep{}
	return func(stage string, done, all int64) {
		if stage != at {
			at, percent = stage, percentStep{p: progress}
			progress.Stage(stage, 100)
		}
		percent.to(done, all)
	}
}

// ModelInfo is what is said of a packed model. Its JSON form is what `cachebench pack verify --json` and `unpack --json` print of one.
type ModelInfo struct {
	Path    string      `json:"path"`
	Hash    model.Hash  `json:"hash"`
	Base    *model.Base `json:"base,omitempty"`
	Files   int         `json:"files"`
	Tensors int         `json:"tensors"`
	Bytes   int64       `json:"bytes"`
	// StoredBytes are those of the pages, and Pages their number.
	StoredBytes int64   `json:"stored_bytes"`
	Pages       uint32  `json:"pages"`
	Out         string  `json:"out,omitempty"`
	Seconds     float64 `json:"seconds"`
}

// onModel opens a packed model, has work done on it, and returns what is said of it.
func onModel(path string, progress Progress, stage string, work func(m *model.Model, progress func(int64)) error) (*ModelInfo, error) {
	start := time.Now()
	m, err := model.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	info := &ModelInfo{Path: path, Hash: m.Hash(), Base: m.Base(), Files: len(m.Files()), Tensors: len(m.Tensors())}
	for _, t := range m.Tensors() {
		info.Bytes += t.Bytes()
	}
	for _, t := range m.Tables() {
		info.StoredBytes += t.Manifest().PageTotal
		info.Pages += t.Manifest().Pages
	}
	show := stages(progress)
	err = work(m, func(done int64) { show(stage, done, info.Bytes) })
	info.Seconds = time.Since(start).Seconds()
	return info, err
}

// VerifyModel checks all pages of a packed model, and the contents of every tensor, through the chain of its bases.
func VerifyModel(ctx context.Context, path string, progress Progress) (*ModelInfo, error) {
	return onModel(path, progress, "verifying, percent of the bytes", func(m *model.Model, done func(int64)) error { return m.Verify(ctx, done) })
}

// UnpackModel writes the files of a packed model to a folder. force replaces files that exist.
func UnpackModel(ctx context.Context, path, out string, force bool, progress Progress) (*ModelInfo, error) {
	if info, err := os.Stat(out); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("--out (%s) must be a folder for the files of the model", out)
	}
	if within(out, path) {
		return nil, fmt.Errorf("--out (%s) must not lie in the model's folder (%s)", out, path)
	}
	info, err := onModel(path, progress, "unpacking, percent of the bytes", func(m *model.Model, done func(int64)) error { return m.Unpack(ctx, out, force, done) })
	if errors.Is(err, os.ErrExist) {
		err = fmt.Errorf("--out: %w: --force replaces it", err)
	}
	if info != nil {
		info.Out = out
	}
	return info, err
}

// pageBytes returns the most bytes of a page, 0 for the default.
func (c *PackConfig) pageBytes() (int, error) {
	if c.Page == "" {
		return 0, nil
	}
	n, err := setting.Bytes("--page", c.Page)
	if err != nil || n < pages.MinPageBytes || n > pages.MaxPageBytes {
		return 0, fmt.Errorf("--page (%q) must be 4KiB to 1MiB", c.Page)
	}
	return int(n), nil
}
