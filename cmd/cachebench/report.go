package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

Result files are cells.jsonl of sweep, and what run, simulate and compress print
with --json, whatever their names (.json, .jsonl).`,
		Example: `  cachebench sweep results --budget 1%,5%,10% --seeds 3 && cachebench report results
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
			skip := []string{"report.html", "plots"} // plots: of older versions
			if same, err := sameDir(dir, filepath.Dir(out)); err != nil {
				return err
			} else if same {
				skip = append(skip, filepath.Base(out))
			}
			results, err := report.ReadResults(dir, skip...)
			if err != nil {
				return err
			}
			for _, p := range results.Problems {
				fmt.Fprintf(cmd.ErrOrStderr(), "cachebench: %s: %s\n", filepath.Join(dir, p.Name), p.Reason)
			}
			var page bytes.Buffer
			if err := report.HTML(&page, results, o); err != nil {
				return err
			}
			if err := atomicfile.Write(out, page.Bytes()); err != nil {
				return fmt.Errorf("report: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), out)
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&out, "out", "", "FILE.html to write (default: DIR/report.html)")
	f.StringVar(&o.Title, "title", "", "heading of the page (default: cachebench report)")
	f.StringVar(&o.Date, "date", "", "text below the heading; the page has no date by itself")
	return cmd
}

// sameDir says that two names are of one folder. The first must exist.
func sameDir(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, fmt.Errorf("report: %w", err)
	}
	y, err := os.Stat(b)
	if errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("--out: folder (%s) must exist", b)
	} else if err != nil {
		return false, fmt.Errorf("--out: %w", err)
	}
	return os.SameFile(x, y), nil
}
