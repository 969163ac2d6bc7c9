package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/bench/trace"
	"github.com/tensorcache/tensorcache/bench/workload"
)

func newTrace() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Look at traces, convert them, and generate workloads as traces",
		// Without it, cobra prints the help for a command that there is not, and succeeds.
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("trace: command (%q) must be one of those that cachebench trace --help lists", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newTraceInfo(), newTraceConvert(), newTraceGenerate())
	return cmd
}

const formatHelp = "format, if content and name do not tell it: "

// addTraceParams adds the flag that libCacheSim calls the same.
func addTraceParams(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "trace-type-params", "", `of a CSV file, which columns have what, as libCacheSim takes it: "time-col=1, obj-id-col=2, obj-size-col=3, delimiter=;, has-header=true"`)
}

func newTraceInfo() *cobra.Command {
	var o trace.Options
	var asJSON, force bool
	cmd := &cobra.Command{
		Use:   "info FILE",
		Short: "Read a trace and say what is in it",
		Example: `  cachebench trace info w01.oracleGeneral.zst
  cachebench trace info requests.csv --json`,
		Args: takes("FILE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r, err := trace.Open(args[0], o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, r.Close()) }()
			s, err := withProgress(cmd, func(bar *progress) (trace.Summary, error) {
				bar.Stage("reading "+args[0], 0)
				limited := r
				if !force {
					limited = trace.Limited(r, "trace", args[0], 40)
				}
				return trace.Summarize(cmd.Context(), limited)
			})
			if err != nil {
				return fmt.Errorf("%w; requests before that: %d", err, s.Requests)
			}
			info := report.NewTraceInfo(args[0], trace.Describe(r), s)
			return show(cmd.OutOrStdout(), asJSON, info, report.Trace)
		},
	}
	cmd.Flags().StringVar(&o.Format, "format", "", formatHelp+strings.Join(trace.Formats(), ", "))
	addTraceParams(cmd.Flags(), &o.Params)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	addForce(cmd.Flags(), &force)
	return cmd
}

func newTraceConvert() *cobra.Command {
	var from, to trace.Options
	var filter trace.Filter
	var partial bool
	cmd := &cobra.Command{
		Use:   "convert FROM TO",
		Short: "Write a trace in another format",
		Long: `Write a trace in another format: what TO's name ends in, compressed if that is
.gz or .zst. What the other format cannot hold is left out; sets and deletes must
be left out by --gets. Next accesses of oraclegeneral are computed.`,
		Example: `  cachebench trace convert requests.csv requests.tct.zst
  cachebench trace convert capture.tct misses.oracleGeneral --misses`,
		Args: takes("FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if filter.Limit < 0 {
				return fmt.Errorf("--limit (%d) must not be negative", filter.Limit)
			}
			r, err := trace.Open(args[0], from)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, r.Close()) }()
			if filter.Misses && !trace.Describe(r).Keeps.Outcomes {
				return fmt.Errorf("--misses needs a captured trace: %s (%s) does not say what missed", args[0], trace.Describe(r).Format)
			}
			w, err := trace.Create(args[1], to)
			if err != nil {
				return err
			}
			bar := newProgress(cmd.ErrOrStderr())
			bar.Stage("converting "+args[0], 0)
			c, failure := trace.Copy(cmd.Context(), w, r, filter)
			bar.close()
			cut := failure != nil && partial && (errors.Is(failure, trace.ErrTruncated) || errors.Is(failure, trace.ErrCorrupt))
			if failure != nil && !cut {
				w.Discard()
				return failure
			}
			if err := w.Close(); err != nil {
				return err
			}
			if cut {
				fmt.Fprintf(cmd.ErrOrStderr(), "cachebench: kept what is before the fault: %v\n", failure)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d of %d requests written to %s\n", c.Written, c.Read, args[1])
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&from.Format, "from", "", formatHelp+strings.Join(trace.Formats(), ", "))
	addTraceParams(f, &from.Params)
	f.StringVar(&to.Format, "to", "", "format, where the name does not say")
	f.BoolVar(&filter.Gets, "gets", false, "leave out sets and deletes")
	f.BoolVar(&filter.Misses, "misses", false, "keep only what a capture saw missing")
	f.Int64Var(&filter.Limit, "limit", 0, "keep only so many requests")
	f.BoolVar(&partial, "partial", false, "of a truncated or corrupt trace, keep what is before the fault")
	return cmd
}

func newTraceGenerate() *cobra.Command {
	var spec workload.Spec
	var out trace.Options
	var path string
	var rowBytes int64
	cmd := &cobra.Command{
		Use:   "generate WORKLOAD --out FILE",
		Short: "Write a generated workload as a trace",
		Long: `Write a generated workload as a trace. WORKLOAD is one of
  mix         Zipf, uniform, scan and loop lookups: --mix zipf:0.9=70%,scan=20%,loop:10000=10%
  dlrm        embedding tables: --tables 1000000:0.9,50000:1.1:4 (rows:exponent:lookups)
  popularity  CacheLib's popularity buckets: --popularity config.json or pop.json
  sampling    neighbour sampling on --graph FILE, or a generated power-law graph
  ngram       n-gram tables of a language model that reads a text: --tokens FILE.npy`,
		Example: `  cachebench trace generate mix --mix zipf:1.0 --rows 1000000 --batches 5000 --out zipf.oracleGeneral.zst
  cachebench trace generate dlrm --turnover 50 --out dlrm.tct
  cachebench trace generate ngram --tokens tokens.npy --rows 96000000 --out ngram.tct
  cachebench trace generate sampling --vertices 6000000 --degree 16 --weighted --out graph.tct`,
		Args: takes("WORKLOAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Kind = args[0]
			if rowBytes < 0 {
				return fmt.Errorf("--row-bytes (%d) must not be negative", rowBytes)
			}
			for name, kinds := range workload.SpecFields {
				if cmd.Flags().Changed(name) && !strings.Contains(" "+kinds+" ", " "+spec.Kind+" ") {
					return fmt.Errorf("--%s means nothing for %s, only for %s", name, spec.Kind, strings.ReplaceAll(kinds, " ", ", "))
				}
			}
			if err := notZero(cmd.Flags(), "batches batch-size rows vertices degree heads layers text-tokens", "at least 1"); err != nil {
				return err
			}
			bar := newProgress(cmd.ErrOrStderr())
			defer bar.close()
			bar.Stage("preparing "+spec.Kind, 0)
			if spec.Kind == "ngram" && rowBytes == 0 {
				rowBytes = workload.NgramRowBytes
			}
			source, err := spec.New()
			if err != nil {
				return err
			}
			w, err := trace.Create(path, out)
			if err != nil {
				return err
			}
			bar.Stage("writing "+path, 0)
			c, err := trace.Copy(cmd.Context(), w, trace.FromWorkload(source, rowBytes), trace.Filter{})
			if err != nil {
				w.Discard()
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			bar.close()
			fmt.Fprintf(cmd.OutOrStdout(), "%d requests written to %s\n", c.Written, path)
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&path, "out", "", "trace to write, in the format that its name ends in")
	f.StringVar(&out.Format, "format", "", "format, where the name does not say")
	f.IntVar(&spec.Batches, "batches", 0, "batches; default 200, ngram the whole text")
	f.IntVar(&spec.BatchSize, "batch-size", 0, "lookups of a batch (dlrm: samples, sampling: seeds, ngram: tokens); default 4096, dlrm 2048, sampling 256, ngram: see --phase")
	f.Int64Var(&spec.Rows, "rows", 0, "rows of a mix (default 1000000), of the popularity buckets (default: as many as they have) or of all n-gram tables (default 2000000)")
	f.StringVar(&spec.Mix, "mix", "", "parts of the mix and their shares, as zipf:0.9=70%,scan=30%: percentages sum to 100, plain numbers are weights (default zipf:1)")
	f.StringVar(&spec.Tables, "tables", "", "embedding tables as rows:exponent:lookups (default: 8 tables)")
	f.IntVar(&spec.Turnover, "turnover", 0, "batches after which a popular row of dlrm has given way to another; 0: never")
	f.StringVar(&spec.Popularity, "popularity", "", "file of popularity buckets, or the config.json that names it")
	f.StringVar(&spec.Graph, "graph", "", "graph to sample: FILE.npz, an edge list, or power-law (default)")
	f.IntVar(&spec.Vertices, "vertices", 0, "vertices of a generated graph (default 500000)")
	f.IntVar(&spec.Degree, "degree", 0, "edges for each vertex of a generated graph (default 15)")
	f.IntSliceVar(&spec.Fanouts, "fanouts", nil, "neighbours sampled per vertex, hop by hop (default 15,10)")
	f.BoolVar(&spec.Weighted, "weighted", false, "sample neighbours by the edges' weights; a generated graph has random ones")
	addNgramSpec(f, &spec.NgramSpec)
	f.Int64Var(&rowBytes, "row-bytes", 0, "size of each request, where the workload does not say (ngram: default 264)")
	f.Uint64Var(&spec.Seed, "seed", 1, "seed of everything")
	addForce(f, &spec.Force)
	if err := cmd.MarkFlagRequired("out"); err != nil {
		panic(err)
	}
	return cmd
}
