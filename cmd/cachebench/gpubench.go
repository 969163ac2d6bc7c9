package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/bench/report"
)

func newGPUBench() *cobra.Command {
	var o gpu.Options
	var from []string
	var out, plot string
	var asJSON, asMarkdown, whole bool
	var measuring []string // flags that say what to measure
	cmd := &cobra.Command{
		Use:   "gpu-bench",
		Short: "Measure the first GPU: each operation beside a plain kernel on the same rows",
		Args:  takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON && asMarkdown {
				return errors.New("--json and --markdown contradict each other")
			}
			for _, name := range measuring {
				if len(from) > 0 && cmd.Flags().Changed(name) {
					return fmt.Errorf("--from and --%s contradict each other", name)
				}
			}
			if plot != "" {
				if base, ok := strings.CutSuffix(plot, ".png"); ok {
					plot = base + ".svg"
					fmt.Fprintf(cmd.ErrOrStderr(), "cachebench: --plot draws SVG only, to %s: the page of cachebench report saves charts as PNG\n", plot)
				}
				if err := checkPlot(plot); err != nil {
					return err
				}
			}
			var res *gpu.Report
			var err error
			if len(from) > 0 {
				res, err = readReports(from)
			} else {
				o.Log = cmd.ErrOrStderr()
				if out != "" {
					o.Save = func(r *gpu.Report) error { return saveReport(out, r) }
				}
				res, err = gpu.Run(o)
			}
			if res == nil {
				return err
			}
			if whole {
				if err := errors.Join(err, res.Whole()); err != nil {
					return err
				}
			}
			if out != "" { // in whole, and with how long the cases took
				err = errors.Join(err, saveReport(out, res))
			}
			err = errors.Join(err, printGPU(cmd.OutOrStdout(), res, asJSON, asMarkdown))
			if plot != "" {
				err = errors.Join(err, writePlot(plot, res))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	o.EnsureDefaults()
	f.StringSliceVar(&o.Cases, "cases", o.Cases, "what to measure: "+strings.Join(gpu.Cases, ", "))
	f.StringSliceVar(&o.Codecs, "codecs", o.Codecs, "codecs that hit-codecs measures, of those that auto-selection tries")
	f.IntSliceVar(&o.RowBytes, "rows", o.RowBytes, "row lengths, bytes, multiples of 4")
	f.Int64Var(&o.TableBytes, "table-bytes", o.TableBytes, "size of the tables")
	f.Int64Var(&o.LargeTableBytes, "large-table-bytes", o.LargeTableBytes, "size of the table of gather-misses-large")
	f.IntSliceVar(&o.HostThreads, "host-threads", o.HostThreads, "threads that the host may spend on misses of gather-misses-large, each measured")
	f.IntVar(&o.Batch, "batch", o.Batch, "rows of a batch")
	f.IntVar(&o.Entries, "entries", o.Entries, "entries of the hashmap for lookup")
	f.IntVar(&o.Runs, "runs", o.Runs, "times each is measured; the median counts")
	measuring = []string{"cases", "codecs", "rows", "table-bytes", "large-table-bytes", "host-threads", "batch", "entries", "runs"}
	f.StringSliceVar(&from, "from", nil, "FILE.json that --json printed, or several of one build to merge: report that instead of measuring")
	f.StringVar(&out, "out", "", "FILE.json: keep the report there, renewed after each result, so that a run that is killed leaves what it measured")
	f.BoolVar(&whole, "whole", false, "report nothing, and say why, where a case is incomplete")
	f.StringVar(&plot, "plot", "", "FILE.svg: draw GB/s over row bytes")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.BoolVar(&asMarkdown, "markdown", false, "print Markdown tables")
	return cmd
}

func readReports(paths []string) (*gpu.Report, error) {
	var all []*gpu.Report
	for _, path := range paths {
		r, err := gpu.ReadReport(path)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	r, err := gpu.Merge(all...)
	if err != nil {
		return nil, fmt.Errorf("--from (%s): %w", strings.Join(paths, ","), err)
	}
	return r, nil
}

// saveReport replaces a file: whoever reads it finds a whole report, of before or of now.
func saveReport(path string, r *gpu.Report) error {
	var b bytes.Buffer
	if err := writeJSON(&b, r); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--out (%q): %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("--out (%q): %w", path, err)
	}
	return nil
}

func printGPU(w io.Writer, r *gpu.Report, asJSON, asMarkdown bool) error {
	switch {
	case asJSON:
		return writeJSON(w, r)
	case asMarkdown:
		return report.GPUMarkdown(w, r)
	}
	return report.GPU(w, r)
}

// checkPlot says what is wrong with a plot's path before minutes of measuring.
func checkPlot(path string) error {
	if filepath.Ext(path) != ".svg" {
		return fmt.Errorf("--plot (%q) must end in .svg", path)
	}
	_, err := os.Lstat(path)
	absent := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("--plot (%q) must be a file that can be written: %w", path, err)
	}
	err = f.Close()
	if absent {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func writePlot(path string, r *gpu.Report) error {
	var b bytes.Buffer
	if err := report.GPUPlot(&b, r); err != nil {
		return fmt.Errorf("--plot (%q): %w", path, err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--plot (%q): %w", path, err)
	}
	return nil
}
