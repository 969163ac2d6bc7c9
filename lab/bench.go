package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/internal/atomicfile"
	"github.com/tensorcache/tensorcache/lab/gpu"
)

// bench is the command that measures a GPU.
func bench(f *flag.FlagSet, args []string) error {
	var o gpu.Options
	var from []string
	o.EnsureDefaults()
	texts := func(name string, to *[]string, usage string) {
		f.Func(name, usage, func(list string) error { *to = strings.Split(list, ","); return nil })
	}
	numbers := func(name string, to *[]int, usage string) { f.Func(name, usage, numbersTo(to)) }
	texts("cases", &o.Cases, "what to measure: "+strings.Join(gpu.Cases, ",")+" (default all)")
	texts("codecs", &o.Codecs, "codecs of hit-codecs, hit-parts and training-fetch (default all)")
	numbers("rows", &o.RowBytes, "row lengths in bytes, multiples of 4")
	f.Int64Var(&o.TableBytes, "table-bytes", o.TableBytes, "size of the tables")
	f.Int64Var(&o.LargeTableBytes, "large-table-bytes", o.LargeTableBytes, "size of the tables of gather-misses-large, training-fetch, ngram-decode and ngram-prefill")
	f.StringVar(&o.Tokens, "tokens", "", "text that ngram-decode and ngram-prefill read: an .npy file of token numbers")
	numbers("host-threads", &o.HostThreads, "threads that the host may spend on misses of gather-misses-large, each measured (default 15,4)")
	f.IntVar(&o.Batch, "batch", o.Batch, "rows of a batch")
	f.IntVar(&o.Entries, "entries", o.Entries, "entries of the hashmap of lookup")
	f.IntVar(&o.Runs, "runs", o.Runs, "times each is measured; the median counts")
	f.Func("from", "measure nothing; print FILE.json that --out kept, or several of one kind of machine as one: FILE,FILE, or the flag for each", func(list string) error {
		from = append(from, strings.Split(list, ",")...)
		return nil
	})
	out := f.String("out", "", "FILE.json: keep the figures there, renewed after each result, so that a run that is killed leaves what it measured")
	whole := f.Bool("whole", false, "print and keep nothing, and say why, where a case is incomplete")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("argument (%q) must be the value of a flag", f.Arg(0))
	}
	save := func(r *gpu.Report) error {
		if *out == "" {
			return nil
		}
		return writeJSON(*out, r)
	}
	if *out != "" { // before minutes of measuring
		t, err := atomicfile.Temporary(*out)
		if err != nil {
			return fmt.Errorf("--out (%q) must be a file that can be written: %w", *out, err)
		}
		if err := errors.Join(t.Close(), os.Remove(t.Name())); err != nil {
			return err
		}
	}
	var r *gpu.Report
	var err error
	if len(from) > 0 {
		r, err = gpu.ReadReports(from)
	} else {
		o.Log, o.Save = os.Stderr, save
		r, err = gpu.Run(o)
	}
	if r == nil {
		return err
	}
	if *whole {
		if err := errors.Join(err, gpu.Whole(r)); err != nil {
			return err
		}
	}
	return errors.Join(err, save(r), gpu.Markdown(os.Stdout, r))
}

// numbersTo sets a list of numbers.
func numbersTo(to *[]int) func(string) error {
	return func(list string) error {
		*to = nil
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(text)
			if err != nil {
				return fmt.Errorf("%q must be a number", text)
			}
			*to = append(*to, n)
		}
		return nil
	}
}
