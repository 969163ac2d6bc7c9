package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/flagfile"
	"github.com/tensorcache/tensorcache/internal/setting"
)

func newRun() *cobra.Command {
	cfg := experiment.SweepConfig{Config: experiment.NewConfig()}
	var asJSON bool
	var configFile, rows string
	var watch telemetryFlags
	cmd := &cobra.Command{
		Use:   "run [FILE]",
		Short: "Run a workload through the cache and through an uncompressed one of the same budget",
		Long: `Run a workload through the cache, and through an uncompressed one of the same budget beside it.

Without flags: a generated power-law graph of 500,000 vertices with 128 float32
features each, two-hop neighbour sampling, and a budget of 5 % of the features.

With --explain, say then of given rows where they are or why they are not cached, with the
policy's estimate of their frequency, their score, and the least score that there was room for.

With --sweep, run a grid: --gpu-memory, --policy, --codec and --host-tier take lists. Each finished
cell is a line of DIR/cells.jsonl, and the same command continues an interrupted sweep. When it
ends, DIR/cells.csv has its main figures. A cell whose budget holds no row is left out, and the
sweep ends with an error that names it. One process at a time.`,
		Example: `  cachebench run
  cachebench run cora.npz --graph cora.npz --gpu-memory 1% --verify
  cachebench run embeddings.npy --ids trace.txt --gpu-memory 64MiB --json
  cachebench run user.npy,item.npy --ids users.txt,items.txt
  cachebench run --workload ngram --tokens tokens.npy --gpu-memory 10%
  cachebench run --attach unix:/run/tensorcached.sock
  cachebench run cora.npz --graph cora.npz --explain 1,17,1000-1010
  cachebench run --sweep results --policy freq,static-freq --gpu-memory 1%,5%,10% --codec none,ibp4 --seeds 5`,
		Args: takesFile("features"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFlags(cmd, configFile); err != nil {
				return err
			}
			if cmd.Flags().Changed("sweep") {
				return runSweep(cmd, cfg, asJSON)
			}
			for _, name := range sweepFlags {
				if value := cmd.Flags().Lookup(name).Value.String(); strings.Contains(value, ",") {
					return fmt.Errorf("--%s (%q) must be one value: a grid of several is run --sweep DIR", name, value)
				}
			}
			return runOnce(cmd, cfg.Config, rows, &watch, asJSON)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.AddFlagSet(runFlags(&cfg.Config))
	f.Lookup("features").Usage = "the table, as FILE: FILE.npy, FILE.npz[:array], FILE.safetensors[:tensor], tensors of a checkpoint or a directory of pack (docs/tables.md), or several: A.npy,B.npy (default: generated rows of 128 float32, column j is N(0,1) × exp(z_j))"
	f.Lookup("ids").Usage += "; for several tables one each: A.txt,B.txt"
	for _, name := range sweepFlags {
		f.Lookup(name).Value = &list{Value: f.Lookup(name).Value}
	}
	watch.add(f)
	f.StringVar(&cfg.Capture, "capture", "", "also write the measured accesses, and whether they hit, to this trace: FILE.tct, or another format by its name")
	f.StringVar(&rows, "explain", "", "say of these rows where they are, or why not: row numbers and ranges of them, 1,17,1000-1010, at most 10000")
	f.StringVar(&cfg.Dir, "sweep", "", "run a grid of --gpu-memory, --policy, --codec and --host-tier, which take lists, and keep the results in this directory")
	f.IntVar(&cfg.Seeds, "seeds", 1, "with --sweep, how often to run the grid: with --seed, --seed + 1 and so on")
	f.StringVar(&cfg.Attach, "attach", "", "measure the cache that tensorcached serves at unix:PATH, instead of one made here")
	f.StringVar(&cfg.Slots, "resident", "", "keep all rows in device memory, compressed, in slots of so many bytes, a multiple of 16; auto: the cache chooses the least expected time. --gpu-memory is then by default enough for the whole table raw")
	f.Float64Var(&cfg.MaxOverflow, "max-overflow", 0, "most rows longer than their slot, 0 to 1, with --resident auto (default: 0.3)")
	f.StringVar(&cfg.Buddy, "buddy", "", "where what is longer than the slots lies, with --resident: host, peer (other devices' memory, within --gpu-memory) or auto (default: host)")
	f.BoolVar(&asJSON, "json", false, "print one JSON object; with --explain and --sweep a JSON array")
	f.StringVar(&configFile, "config", "", "FILE.json with these flags as keys, underscores for dashes; flags override it")
	return cmd
}

// runOnce runs one configuration, and explains rows if there are any.
func runOnce(cmd *cobra.Command, cfg experiment.Config, rows string, watch *telemetryFlags, asJSON bool) error {
	explaining := cmd.Flags().Changed("explain")
	var list []int64
	var err error
	if explaining {
		if list, err = setting.Rows("--explain", rows); err != nil {
			return err
		}
	}
	if cfg.Slots != "" && !cmd.Flags().Changed("gpu-memory") {
		cfg.Budget = experiment.WholeTable
	}
	end, err := watch.start(cmd, &cfg)
	if err != nil {
		return err
	}
	defer end()
	if cfg.Attach != "" {
		leave, err := cfg.Join(cmd.Context())
		if err != nil {
			return err
		}
		defer leave()
	}
	switch {
	case explaining:
		_, err := present(cmd, asJSON, func(bar *progress) ([]experiment.Explained, error) {
			return experiment.Explain(cmd.Context(), cfg, list, bar)
		}, report.Explained)
		return err
	case cfg.Several():
		res, err := present(cmd, asJSON, func(bar *progress) (*experiment.TablesResult, error) {
			return experiment.RunTables(cmd.Context(), cfg, bar)
		}, report.Tables)
		if err != nil {
			return err
		}
		return ended(res.Partial, &res.Verification)
	}
	res, err := present(cmd, asJSON, func(bar *progress) (*experiment.Result, error) { return experiment.Run(cmd.Context(), cfg, bar) }, report.Run)
	if err != nil {
		return err
	}
	return ended(res.Partial, &res.Verification)
}

// runFlags are the flags of table, workload and cache. Other commands take some of them, or have lists instead.
func runFlags(cfg *experiment.Config) *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SortFlags = false
	f.Var(&once{to: &cfg.Features}, "features", "the table, as FILE: FILE.npy, FILE.npz[:array], FILE.safetensors[:tensor], tensors of a checkpoint or a directory of pack (docs/tables.md) (default: generated rows of 128 float32, column j is N(0,1) × exp(z_j))")
	f.StringVar(&cfg.DType, "dtype", "", "take the table's elements for those of this type, of the same length: float8_e4m3fn for the bytes of an .npy file; or parts of a row: float8_e4m3fn*256,float8_e8m0fnu*8")
	f.StringVar(&cfg.Cast, "cast", "", "round the table's elements first: bf16, f16, f8e4m3, f8e5m2 or, to powers of two, f8e8m0; f8e4m3/e8m0:32 has a scale for each 32 of them behind the values")
	f.Var(&once{to: &cfg.Graph}, "graph", "graph to sample: FILE.npz with CSR indptr and indices, or an edge list, with a vertex for each row (default: generated, 15 out-neighbours on average, targets ∝ rank^-0.75)")
	f.IntVar(&cfg.Vertices, "vertices", cfg.Vertices, "vertices of the generated graph, rows of the generated table")
	f.Var(&once{to: &cfg.IDs}, "ids", "row numbers to look up instead of sampling: FILE with one a line, FILE.npy of integers, or the gets of a trace, also from a pipe or compressed")
	f.IntSliceVar(&cfg.Fanouts, "fanouts", cfg.Fanouts, "neighbours sampled per vertex, hop by hop")
	f.BoolVar(&cfg.Weighted, "weighted", false, "sample neighbours by the edges' weights: an edge list's, an .npz graph's array weights, random ones of a generated graph")
	addNgram(f, &cfg.Ngram)
	f.IntVar(&cfg.Bag, "bag", 0, "rows of a bag, with --workload embedding")
	f.BoolVar(&cfg.Pooled, "pooled", false, "add up the rows of each bag, with --workload embedding, of float32, float16, bfloat16 or float8 elements; speeds are of the rows read, uncompressed; --verify compares sums within the errors of their additions")
	f.IntVar(&cfg.BatchSize, "batch-size", 0, "seed vertices of a sampled batch; row numbers of a replayed one; tokens of an n-gram one")
	f.IntVar(&cfg.Batches, "batches", experiment.Default, "batches to measure")
	f.IntVar(&cfg.TrainBatches, "train-batches", experiment.Default, "batches that the cache is trained on first")
	f.StringVar(&cfg.Budget, "gpu-memory", cfg.Budget, "device memory for cached rows and their hashmap, of each device: 1% of the table's raw bytes, or 64MiB")
	f.StringVar(&cfg.Policy, "policy", cfg.Policy, "which rows are cached (docs/admission.md): "+strings.Join(admission.Names(), ", "))
	f.StringVar(&cfg.Codec, "codec", cfg.Codec, "auto picks for the fastest batches, measured or predicted (docs/codecs.md): "+strings.Join(registry.Usage(), ", "))
	f.StringVar(&cfg.HostTier, "host-tier", cfg.HostTier, "layout of the rows in host memory: inplace or packed")
	f.BoolVar(&cfg.NoEqualRows, "no-equal-rows", false, "equal rows of host tier inplace have slots of their own; otherwise they share them, if a sample finds enough of them. Those of a packed tier always do")
	f.VarPF(coldFlag{cfg}, "cold", "", "begin with an empty cache: training batches run through it, unmeasured; with redis://HOST:PORT instead: a cluster that has the table's pages").NoOptDefVal = "true"
	f.StringVar(&cfg.ColdCache, "cold-cache", "", "folder on this machine's drive that keeps pages of the cluster of --cold once they have been read, also for the next run")
	f.StringVar(&cfg.ColdCacheBytes, "cold-cache-bytes", "", "most bytes of pages in --cold-cache (default: 16GiB)")
	f.IntVar(&cfg.Drift, "drift", 0, "after every so many measured batches make other rows hot, by shifting all row numbers; a static cache is shown too")
	f.IntVar(&cfg.RefreshBatches, "refresh-batches", 0, "batches between refresh cycles, which are not measured")
	f.DurationVar(&cfg.RefreshInterval, "refresh-interval", 0, "time between refresh cycles in the background instead, such as 100ms")
	f.Float64Var(&cfg.RefreshChurn, "refresh-churn", cfg.RefreshChurn, "most of the cache that a cycle replaces, 0 to 1")
	f.StringVar(&cfg.RefreshBytes, "refresh-bytes", "", "most bytes that a cycle writes (default: 256MiB)")
	f.Float64Var(&cfg.SampleRate, "sample-rate", cfg.SampleRate, "share of accesses that the policy observes, 0 to 1")
	f.StringVar(&cfg.Link, "link", "", "GB/s at which a GPU reads misses (default: measured on a GPU, else 55), for codec auto; none: pick for this machine's processors")
	f.StringVar(&cfg.Device, "device", cfg.Device, "backend: auto, host or cuda")
	f.IntVar(&cfg.Devices, "devices", cfg.Devices, "devices that the cache spans, 1 to 8: the first GPUs")
	f.StringVar(&cfg.GPUs, "gpus", "", "GPUs that the cache spans: 0,2 or all (default: the first --devices)")
	f.StringVar(&cfg.Placement, "placement", cfg.Placement, "which rows lie in which slabs: auto (copies rows to several slabs where the model says that this is faster, by --rates), partition (one slot for each row) or replicate (one in every slab)")
	f.StringVar(&cfg.Rates, "rates", "", "speeds for --placement auto: FILE.json of devices --measure, or local=1900,peer=350,host=50 (GB/s)")
	f.StringVar(&cfg.HostNodes, "host-nodes", "", "memory nodes (NUMA) of the host tier, its pages in turns: 0,1, or any, as the system chooses (default: those nearest to the GPUs)")
	f.StringVar(&cfg.HostMemory, "host-memory", "", "most host memory for rows and index of a table of pages: 8MiB (default: all rows)")
	f.IntVar(&cfg.Prefetch, "prefetch", 0, "batches ahead of which rows of a table of pages are prefetched; the output says how many arrived in time (default: none are)")
	f.IntVar(&cfg.Workers, "workers", 0, "goroutines of the host, at most 1024 (default: one a processor)")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "seed of everything generated and sampled")
	f.Uint64Var(&cfg.DataSeed, "data-seed", 0, "another seed of the generated table and graph (default: --seed)")
	f.BoolVar(&cfg.Verify, "verify", false, "compare every row with its source, within the bound of a lossy codec; exit status 1 if any differs")
	addForce(f, &cfg.Force)
	// What stands for a default of the workload or the cache is shown as that.
	f.Lookup("batch-size").DefValue = "256, with --ids 4096 or a quarter of fewer than 16384, with --workload embedding 2048, with --workload ngram: see --phase"
	f.Lookup("bag").DefValue = "20"
	f.Lookup("batches").DefValue = "200, with --ids and --workload ngram all"
	f.Lookup("train-batches").DefValue = "50 of another seed; with --ids the first quarter, measured too, while a number given is of batches that are not measured; with --workload ngram all of the first 80 % of the text; with --attach none, and those given are read and not measured"
	f.Lookup("refresh-batches").DefValue = "5 with --cold or --drift and no --refresh-interval"
	return f
}

// once is a flag of a file, which is an error if it is given twice: the first file would not be read.
type once struct {
	to    *string
	given bool
}

// String implements pflag.Value.
func (o *once) String() string {
	if o.to == nil {
		return ""
	}
	return *o.to
}

// Type implements pflag.Value.
func (o *once) Type() string { return "string" }

// Set implements pflag.Value.
func (o *once) Set(value string) error {
	if o.given {
		return flagfile.GivenTwice(*o.to)
	}
	*o.to, o.given = value, true
	return nil
}

// addForce defines the flag of commands that estimate their memory.
func addForce(f *pflag.FlagSet, force *bool) {
	f.BoolVar(force, "force", false, "go on where the memory is estimated not to suffice")
}

// ended is the error of a run that has a result: of one whose rows differed from their source, or that was interrupted.
func ended(partial bool, v *experiment.Verification) error {
	switch {
	case v.Mismatches > 0 && v.VerifiedBound > 0:
		return fmt.Errorf("%w: %d of %d, by more than %g", errMismatch, v.Mismatches, v.VerifiedRows, v.VerifiedBound)
	case v.Mismatches > 0:
		return fmt.Errorf("%w: %d of %d", errMismatch, v.Mismatches, v.VerifiedRows)
	case partial:
		return context.Canceled // which main names
	}
	return nil
}

// checkFlags takes in the config file, if there is one, and refuses flags that others make meaningless.
func checkFlags(cmd *cobra.Command, configFile string) error {
	if configFile != "" {
		if err := applyConfigFile(cmd.Flags(), configFile); err != nil {
			return err
		}
		if err := refuseEmpty(cmd.Flags()); err != nil {
			return err
		}
	}
	f := cmd.Flags()
	if err := cmp.Or(checkAttach(f), checkRules(f), notZero(f, "batch-size rows heads layers text-tokens", "at least 1")); err != nil {
		return err
	}
	for _, name := range []string{"batches", "train-batches"} {
		if v := f.Lookup(name).Value.String(); f.Changed(name) && strings.HasPrefix(v, "-") {
			return fmt.Errorf("--%s (%s) must not be negative", name, v)
		}
	}
	return nil
}

// refuseEmpty refuses flags that are given and empty, as an unset variable of a shell is: without them a command does another thing.
func refuseEmpty(f *pflag.FlagSet) (err error) {
	f.Visit(func(flag *pflag.Flag) {
		if err == nil && strings.Trim(flag.Value.String(), "[]") == "" && !flag.Hidden {
			err = fmt.Errorf(`--%s ("") must not be empty: leave it out`, flag.Name)
		}
	})
	return err
}

// ownersFlags make a cache, its tables or its workload's changes, which an attached cache has from its owner.
var ownersFlags = []string{
	"vertices", "gpu-memory", "policy", "codec", "host-tier", "cold", "drift", "refresh-batches", "refresh-interval", "refresh-churn", "refresh-bytes",
	"sample-rate", "link", "device", "resident", "max-overflow", "buddy", "devices", "gpus", "placement", "rates", "host-nodes",
}

// checkAttach refuses flags that mean nothing for an attached cache.
func checkAttach(f *pflag.FlagSet) error {
	if f.Lookup("attach") == nil || !f.Changed("attach") {
		return nil
	}
	var refused []string
	for _, name := range ownersFlags {
		if f.Changed(name) {
			refused = append(refused, "--"+name)
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("%s: --attach measures the cache as its owner has configured it", strings.Join(refused, ", "))
	}
	return nil
}

// present does the work of a command while its progress is shown, and prints the result as show does.
func present[T any](cmd *cobra.Command, asJSON bool, work func(*progress) (T, error), print func(io.Writer, T) error) (T, error) {
	v, err := withProgress(cmd, work)
	if err == nil {
		err = show(cmd.OutOrStdout(), asJSON, v, print)
	}
	return v, err
}

// show prints a result: as JSON, or as print does.
func show[T any](w io.Writer, asJSON bool, v T, print func(io.Writer, T) error) error {
	if asJSON {
		return writeJSON(w, v)
	}
	return print(w, v)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
