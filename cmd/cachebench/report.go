package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
)

func newReport() *cobra.Command {
	var out string
	var o report.HTMLOptions
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Make one HTML page of every result file in a folder",
		Long: `Make one HTML page of every result file in a folder. The page needs no network
and no other file, and saves its charts as PNG.

A chart has at most 8 series; more are divided into several. Names in a legend hide a
series, headings sort a table, and "Values" under a chart is the table that it is drawn
from. The same results give the same page.

Result files are cells.jsonl of run --sweep, and what run, simulate, compress and plan print
with --json, whatever their names (.json, .jsonl). Folders in DIR are not read. A result that cannot be read is
named, the page has the others, and the exit status is 1. Other files, and a last
line that an interrupted sweep left, are named only.`,
		Example: `  cachebench run --sweep results --gpu-memory 1%,5%,10% --seeds 3 && cachebench report results
  cachebench run --json >results/run.json && cachebench report results --title "cora at 1 %"`,
		Args: takes("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if out == "" {
				out = filepath.Join(dir, "report.html")
			}
			if ext := strings.ToLower(filepath.Ext(out)); ext != ".html" && ext != ".htm" { // it might be a result
				return fmt.Errorf("--out (%q) must end in .html", out)
			}
			results, err := report.ReadResults(dir)
			if err == nil {
				err = checkOutput(out)
			}
			if err != nil {
				return err
			}
			for _, p := range results.Problems {
				fmt.Fprintf(cmd.ErrOrStderr(), "cachebench: %s: %s\n", filepath.Join(dir, p.Name), p.Reason)
			}
			if err := writeOutput(out, func(w io.Writer) error { return report.HTML(w, results, o) }); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), out); err != nil {
				return err
			}
			if slices.ContainsFunc(results.Problems, func(p report.Problem) bool { return p.Damaged }) {
				return errors.New("report: results are damaged, as said above; the page has the others")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&out, "out", "", "FILE.html to write (default: DIR/report.html)")
	f.StringVar(&o.Title, "title", "", "heading of the page (default: cachebench report)")
	cmd.AddCommand(newCompare())
	f.StringVar(&o.Date, "date", "", "text below the heading; the page has no date by itself")
	return cmd
}

// checkOutput says what is wrong with a path before all results are read.
func checkOutput(path string) error {
	f, err := atomicfile.Temporary(path)
	if err != nil {
		return fmt.Errorf("--out (%q) must be a file that can be written: %w", path, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writeOutput replaces a file by what write writes.
func writeOutput(path string, write func(io.Writer) error) error {
	var b bytes.Buffer
	err := write(&b)
	if err == nil {
		err = atomicfile.Write(path, b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("--out (%q): %w", path, err)
	}
	return nil
}
