package experiment

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/cache"
)

// Join attaches to the cache at Attach, which Run and RunTables then measure. leave must be called after them.
func (c *Config) Join(ctx context.Context) (leave func() error, err error) {
	attached, err := cache.Attach(ctx, c.Attach, cache.AttachOptions{
		Name: "cachebench", Workers: c.Workers, Telemetry: cache.TelemetryOptions{Name: "cachebench", TraceRate: c.TraceRate, Logger: c.Logger},
	})
	if err != nil {
		return nil, fmt.Errorf("--attach (%s): %w", c.Attach, err)
	}
	s, err := attached.Stats()
	if err == nil && s.Machine == nil {
		err = fmt.Errorf("--attach (%s): %w: %s", c.Attach, cache.ErrOwner, s.OwnerError)
	}
	if err != nil {
		attached.Close()
		return nil, err
	}
	c.joined = &joined{attached, s.Tables}
	if c.TrainBatches == Default {
		c.TrainBatches = 0 // the cache has been filled
	}
	return attached.Close, nil
}

// joined is the cache of another process that is measured, and its tables as they were before.
type joined struct {
	*cache.Cache
	tables []cache.TableStats
}

// table returns a table of the cache without its rows, or with those of a file, which must have the same form.
func (j *joined) table(i int, file *dataset.Table) (*dataset.Table, error) {
	t := &j.tables[i]
	if file == nil {
		return &dataset.Table{Name: t.Name, DType: t.DType, Rows: int(t.Rows), RowBytes: t.RowBytes}, nil
	}
	if int64(file.Rows) != t.Rows || file.RowBytes != t.RowBytes || file.DType != t.DType {
		return nil, fmt.Errorf("--features: %s (%d rows of %d bytes, %s) must be as table %s of the attached cache (%d rows of %d bytes, %s)",
			file.Name, file.Rows, file.RowBytes, file.DType, t.Name, t.Rows, t.RowBytes, t.DType)
	}
	return file, nil
}

// tableCount returns the number of tables of a run.
func (c *Config) tableCount() int {
	if c.joined != nil {
		return len(c.joined.tables)
	}
	return strings.Count(c.Features, ",") + 1
}

// bound is the most by which a gathered element of a table may differ from its source.
func (r *run) bound(table int) float64 {
	if r.cfg.joined != nil {
		return Bound(r.cfg.joined.tables[table].Codec)
	}
	return Bound(r.cfg.Codec)
}

// Attachment is what the result of an attached run has in addition.
type Attachment struct {
	// Attached is the address of the cache's owner. The memory and the cached rows of the result are then those of the whole cache, all else
	// is of this process.
	Attached string `json:"attached,omitempty"`
	// OwnerError is why the owner could not be asked when the run ended. Memory and cached rows are then what it said last.
	OwnerError string `json:"owner_error,omitempty"`
}

// Compares says whether the result compares with an uncompressed cache. Tables in pages have none: it would need all rows in memory.
func (r *Result) Compares() bool { return !r.Partial && r.Attached == "" && r.Tiers == nil }

// Compares says whether the result compares with an uncompressed cache, as Result.Compares does.
func (r *TablesResult) Compares() bool {
	paged := func(t TableResult) bool { return t.Tiers != nil }
	return !r.Partial && r.Attached == "" && !slices.ContainsFunc(r.Tables, paged)
}

// attachment returns what a result has in addition.
func (r *run) attachment(m *measurement) Attachment {
	if r.cfg.joined == nil {
		return Attachment{}
	}
	return Attachment{r.cfg.Attach, m.stats.OwnerError}
}
