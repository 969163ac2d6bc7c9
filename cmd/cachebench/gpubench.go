package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
)

func newGPUBench() *cobra.Command {
	var o gpu.Options
	var from []string
	var out, plot string
	var asJSON, asMarkdown, whole bool
	var measuring []string // flags that say what to measure
	cmd := &cobra.Command{
		Use:    "gpu-bench",
		Hidden: true, // for developers
		Short:  "Measure the first GPU: each operation beside a plain kernel on the same rows",
		Args:   takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON && asMarkdown {
				return errors.New("--json and --markdown contradict each other")
			}
			for _, name := range measuring {
				if len(from) > 0 && cmd.Flags().Changed(name) {
					return fmt.Errorf("--from and --%s contradict each other", name)
				}
			}
			if err := errors.Join(checkOutput("out", out, ""), checkOutput("plot", plot, ".html")); err != nil {
				return err
			}
			save := func(r *gpu.Report) error {
				return writeOutput("out", out, func(w io.Writer) error { return writeJSON(w, r) })
			}
			var res *gpu.Report
			var err error
			if len(from) > 0 {
				res, err = readReports(from)
			} else {
				o.Log = cmd.ErrOrStderr()
				o.Save = save
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
			err = errors.Join(err, save(res)) // in whole, and with how long the cases took
			if asMarkdown {
				err = errors.Join(err, report.GPUMarkdown(cmd.OutOrStdout(), res))
			} else {
				err = errors.Join(err, show(cmd.OutOrStdout(), asJSON, res, report.GPU))
			}
			return errors.Join(err, writeOutput("plot", plot, func(w io.Writer) error { return report.GPUPlot(w, res) }))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	o.EnsureDefaults()
	f.StringSliceVar(&o.Cases, "cases", o.Cases, "what to measure: "+strings.Join(gpu.Cases, ", "))
	f.StringSliceVar(&o.Codecs, "codecs", o.Codecs, "codecs that hit-codecs measures, of those that auto-selection tries")
	f.IntSliceVar(&o.Lanes, "lanes", nil, "numbers of lanes, of 8, 16 and 32, by which hit-columns decodes a row besides those that suit it")
	f.IntSliceVar(&o.RowBytes, "rows", o.RowBytes, "row lengths, bytes, multiples of 4")
	f.Int64Var(&o.TableBytes, "table-bytes", o.TableBytes, "size of the tables")
	f.Int64Var(&o.LargeTableBytes, "large-table-bytes", o.LargeTableBytes, "size of the tables of gather-misses-large, training-fetch, ngram-decode and ngram-prefill")
	f.StringVar(&o.Embedding, "embedding", "", "float32 rows that buddy-budget makes longer ones of, beside N(0,1): an .npy file")
	f.StringVar(&o.Tokens, "tokens", "", "text that ngram-decode and ngram-prefill read: an .npy file of token numbers")
	f.IntSliceVar(&o.HostThreads, "host-threads", o.HostThreads, "threads that the host may spend on misses of gather-misses-large, each measured")
	f.IntVar(&o.Batch, "batch", o.Batch, "rows of a batch")
	f.IntVar(&o.Entries, "entries", o.Entries, "entries of the hashmap for lookup")
	f.IntVar(&o.Runs, "runs", o.Runs, "times each is measured; the median counts")
	measuring = []string{"cases", "codecs", "lanes", "rows", "table-bytes", "large-table-bytes", "tokens", "embedding", "host-threads", "batch", "entries", "runs"}
	f.StringSliceVar(&from, "from", nil, "FILE.json that --json printed, or several of one build to merge: report that instead of measuring")
	f.StringVar(&out, "out", "", "FILE.json: keep the report there, renewed after each result, so that a run that is killed leaves what it measured")
	f.BoolVar(&whole, "whole", false, "report nothing, and say why, where a case is incomplete")
	f.StringVar(&plot, "plot", "", "FILE.html: draw GB/s over row bytes")
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

// checkOutput says what is wrong with a flag's path before minutes of measuring.
func checkOutput(flag, path, ext string) error {
	if path == "" {
		return nil
	}
	if ext != "" && filepath.Ext(path) != ext {
		return fmt.Errorf("--%s (%q) must end in %s", flag, path, ext)
	}
	f, err := atomicfile.Temporary(path)
	if err != nil {
		return fmt.Errorf("--%s (%q) must be a file that can be written: %w", flag, path, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writeOutput replaces a flag's file, if there is a path, by what write writes.
func writeOutput(flag, path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	var b bytes.Buffer
	err := write(&b)
	if err == nil {
		err = atomicfile.Write(path, b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("--%s (%q): %w", flag, path, err)
	}
	return nil
}
