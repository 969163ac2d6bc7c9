package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device/cuda"
)

// minTime is how long compress measures a speed; 0 for the default. Tests, which need no exact speeds, set it.
var minTime time.Duration

func newCompress() *cobra.Command {
	cfg := experiment.CompressConfig{MinTime: minTime}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compress [FILE]",
		Short: "Compress a table with every codec, and with zstd and lz4 row by row, and compare them",
		Example: `  cachebench compress cora.npz
  cachebench compress embeddings.npy --cast bf16 --bounds
  cachebench compress --generate weather --bounds
  cachebench compress 'checkpoint/:model.ngram.*.weight+model.ngram.*.scale' --codec parts`,
		Args: takesFile("features"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cuda.Count() > 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "cachebench: speeds are of a processor; docs/performance.md has those of a GPU")
			}
			results, err := present(cmd, asJSON, func(bar *progress) ([]experiment.CodecResult, error) {
				return experiment.Compress(cmd.Context(), cfg, bar)
			}, func(w io.Writer, results []experiment.CodecResult) error {
				if cfg.Features == "" {
					fmt.Fprintf(w, "a generated table (%s), as no FILE is given: ", cmp.Or(cfg.Generate, experiment.Generated[0]))
				}
				return report.Compress(w, results)
			})
			return cmp.Or(err, failedRoundTrip(results))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var(&once{to: &cfg.Features}, "features", "the table, as FILE: FILE.npy, FILE.npz[:array], FILE.safetensors[:tensor] or tensors of a checkpoint (docs/tables.md) (default: the generated table of run)")
	f.StringVar(&cfg.DType, "dtype", "", "take the table's elements for those of this type, of the same length: float8_e4m3fn for the bytes of an .npy file; or parts of a row: float8_e4m3fn*256,float8_e8m0fnu*8")
	f.StringVar(&cfg.Cast, "cast", "", "round the table's elements first: bf16, f16, f8e4m3, f8e5m2 or, to powers of two, f8e8m0; f8e4m3/e8m0:32 has a scale for each 32 of them behind the values")
	f.IntVar(&cfg.RowElements, "row-elements", 0, "take so many elements, before they are rounded, for a row")
	f.StringVar(&cfg.Generate, "generate", "", "table without a file: features (that of run), normal (200,000 rows of 256 float32, N(0,1)), ngram (200,000 float8 rows of n-gram tables), or one in place of real tables that are not shipped: shares (bags of words divided by their number), places (a few ones), documents (document vectors), weather (fields of a weather model), weights (float16 weights of a network)")
	f.StringVar(&cfg.Codec, "codec", "", strings.Join(registry.Usage(), ", ")+", or zstd (level 3) and lz4 for comparison (default: all)")
	f.Uint64Var(&cfg.Seed, "seed", 1, "seed of the sample and of the generated table")
	f.BoolVar(&cfg.Bounds, "bounds", false, "also estimate by entropy what codecs of single elements save, of at most 13 leading bits; no limits: codecs that save more are named")
	addForce(f, &cfg.Force)
	f.Lookup("generate").DefValue = experiment.Generated[0]
	f.Lookup("row-elements").DefValue = "as they are"
	f.BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

// failedRoundTrip is the error of the first codec that did not give the rows back.
func failedRoundTrip(results []experiment.CodecResult) error {
	for _, r := range results {
		if r.RoundTrip != "ok" && r.RoundTrip != experiment.RoundTripLossy {
			return fmt.Errorf("codec %s: %w: %s", r.Codec, errMismatch, r.RoundTrip)
		}
	}
	return nil
}
