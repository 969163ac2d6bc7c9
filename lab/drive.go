package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/lab/drive"
	"github.com/tensorcache/tensorcache/pages"
)

// measureDrive is the command that measures a drive.
func measureDrive(ctx context.Context, f *flag.FlagSet, args []string) error {
	c := drive.Config{Seed: 1}
	c.Text.Leads = []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond}
	f.StringVar(&c.Dir, "dir", "", "folder on the drive: pages are made in it, and removed at the end")
	size := f.String("bytes", "4GiB", "size of the table; larger than the drive's own cache")
	page := f.String("page", "256KiB", "size of a page, 4KiB to 1MiB")
	f.IntVar(&c.RowBytes, "row-bytes", 0, "size of a row (default 512; with --tokens that of n-gram rows)")
	f.IntVar(&c.Depth, "depth", 64, "reads at once")
	f.Float64Var(&c.Share, "share", 0.5, "share of the pages that a round reads, at random")
	f.IntVar(&c.Rounds, "rounds", 5, "how often each reader reads")
	f.StringVar(&c.Gather.Device, "gather", "", "also read batches of power-law rows through a cache over the pages: host or cuda")
	hostMemory := f.String("host-memory", "8GiB", "host memory of that cache")
	budget := f.String("budget", "4GiB", "device memory of that cache")
	f.IntVar(&c.Gather.Rows, "batch", 200_000, "rows of a batch")
	f.IntVar(&c.Gather.Batches, "batches", 12, "batches that are timed, without and with Prefetch")
	f.Float64Var(&c.Gather.Skew, "skew", 1.1, "exponent of the power law, above 1")
	f.StringVar(&c.Text.Tokens, "tokens", "", "also read the n-gram rows of a text, an .npy file of token numbers, through that cache")
	f.IntVar(&c.Text.Layers, "layers", 0, "layers with n-gram tables (default 1)")
	f.StringVar(&c.Text.Phase, "phase", "", "steps of the text: decode (default) or prefill")
	f.IntVar(&c.Text.BatchSize, "batch-size", 0, "tokens of a step (default that of the phase)")
	f.IntVar(&c.Text.Steps, "steps", 200, "steps that are timed with each lead, and without")
	f.Func("lead", "how long before a step Prefetch is called with its rows (default 1ms,5ms,20ms)", func(list string) error {
		c.Text.Leads = nil
		for text := range strings.SplitSeq(list, ",") {
			lead, err := time.ParseDuration(text)
			if err != nil {
				return err
			}
			c.Text.Leads = append(c.Text.Leads, lead)
		}
		return nil
	})
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of rows and choices")
	if err := f.Parse(args); err != nil {
		return err
	}
	var errs [4]error
	var p int64
	c.Bytes, errs[0] = setting.Bytes("--bytes", *size)
	p, errs[1] = setting.Bytes("--page", *page)
	c.Gather.HostMemory, errs[2] = setting.Bytes("--host-memory", *hostMemory)
	c.Gather.Budget, errs[3] = setting.Bytes("--budget", *budget)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if c.PageBytes = int(p); p < pages.MinPageBytes || p > pages.MaxPageBytes {
		return fmt.Errorf("--page (%q) must be 4KiB to 1MiB", *page)
	}
	if c.Text.Tokens != "" && c.Gather.Device == "" {
		return errors.New("--tokens needs --gather: a text is looked up through a cache")
	}
	if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
		return fmt.Errorf("--dir (%s) must be a folder on the drive", c.Dir)
	}
	r, err := drive.Measure(ctx, c)
	if err != nil {
		return err
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
