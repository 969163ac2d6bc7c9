package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
	"github.com/tensorcache/tensorcache/pages/model"
)

func newPack() *cobra.Command {
	cfg := experiment.PackConfig{Seed: 1}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pack FILE --out DIR|redis://HOST:PORT[,HOST:PORT…][/TABLE]",
		Short: "Pack a table, or a model, into a directory or a cluster of pages of compressed rows",
		Long: `Pack a table into a directory of pages of compressed rows, which opens without encoding
and may be larger than memory. An interrupted pack goes on where it was when it is run
again with the same arguments. A directory that has a table gets the new one as its next
generation; readers see the old one until it is complete. A table of another name, row
length or element type is replaced with --force only.

A folder of .safetensors files, or FILE.safetensors without :NAME, is a model: all its
tensors are packed, of any shape and type, and unpack writes the same files, byte for byte.
With --base it is stored as the difference from an earlier model, such as a checkpoint.

FILE may also be a directory of pages or a cluster, whose pages are then copied as they
are. A file that is called as a sub-command is given as ./verify, or by --features.

In a Valkey or Redis Cluster, or a single server, the pages become keys; rediss:// is TLS.
Readers open the new generation from one moment on; older ones are deleted once nobody
reads them. An interrupted pack begins anew. User, password and certificates come from
TENSORCACHE_CLUSTER_USER, TENSORCACHE_CLUSTER_PASSWORD or TENSORCACHE_CLUSTER_PASSWORD_FILE,
TENSORCACHE_CLUSTER_CA, TENSORCACHE_CLUSTER_CERT and TENSORCACHE_CLUSTER_KEY.`,
		Example: `  cachebench pack features.npy --out features.tc
  cachebench pack features.npy --out features.tc --order degree --graph graph.npz
  cachebench pack features.npy --out features.tc --order frequency --ids accesses.tct
  cachebench pack MODEL_DIR --out model.tc
  cachebench pack step-20.safetensors --base step-10.tc --keep-base-every 10 --out step-20.tc
  cachebench pack features.tc --out redis://10.0.0.1:6379,10.0.0.2:6379/features`,
		Args: takesFile("features"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Features == "" {
				return errors.New("pack: the table must be given: pack FILE, or --features FILE")
			}
			hint := "the same command goes on where it was"
			if cluster.IsAddress(cfg.Out) {
				hint = "the cluster has the table that it had before"
			}
			resume.Store(&hint)
			if cfg.PacksModel() {
				_, err := present(cmd, asJSON, func(bar *progress) (*model.Packed, error) {
					return experiment.PackModel(cmd.Context(), cfg, bar)
				}, report.PackedModel)
				return err
			}
			_, err := present(cmd, asJSON, func(bar *progress) (*experiment.Packed, error) {
				return experiment.Pack(cmd.Context(), cfg, bar)
			}, report.Packed)
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var(&once{to: &cfg.Features}, "features", "the table, as FILE: FILE.npy, FILE.npz[:array], FILE.safetensors:tensor, a directory of pages or redis://HOST:PORT/TABLE; or the model: a folder, or FILE.safetensors")
	f.Var(&once{to: &cfg.Out}, "out", "directory to make, or to make the next generation of a table in, or the address of a cluster")
	f.StringVar(&cfg.Name, "name", "", "name of the table (default: the address's, or the file's)")
	f.StringVar(&cfg.Codec, "codec", "", strings.Join(registry.Usage(), ", ")+", "+pages.Smallest+" (default auto, for an H200 behind a link of 55 GB/s, a tenth of the table in the cache and hits by a power law; of a model "+pages.Smallest+")")
	f.StringVar(&cfg.Base, "base", "", "packed model to store the difference from: tensors of the same name, type and shape (default: none)")
	f.IntVar(&cfg.KeepBaseEvery, "keep-base-every", 0, "of so many models in a row one is stored as a whole, although there is a --base (default: none)")
	f.StringVar(&cfg.Page, "page", "", "most bytes of a page, 4KiB to 1MiB (default 256KiB)")
	f.StringVar(&cfg.Stage, "stage", "", "second stage, of whole pages that it makes 5% shorter: "+pages.StageAuto+", "+strings.Join(pages.Stages, ", ")+" (default auto: the one that saves most of a few pages, if it saves 5%)")
	f.StringVar(&cfg.Order, "order", "", "rows that lie first in pages: degree (with --graph), frequency (with --ids), or a FILE of row numbers: .npy, or text; others follow (default: by row number)")
	f.StringVar(&cfg.Graph, "graph", "", "graph for --order degree: FILE.npz with CSR indptr and indices, or an edge list")
	f.StringVar(&cfg.IDs, "ids", "", "accesses for --order frequency: row numbers in a text file or FILE.npy, or a trace")
	f.StringVar(&cfg.Scratch, "scratch", "", "folder for the files of --order, up to 12 bytes a row (default: that of --out; of a cluster TMPDIR or, if that lies in memory, /var/tmp)")
	f.IntVar(&cfg.Workers, "workers", 0, "goroutines that encode, at most 8; each takes 64 MiB (default: one a processor)")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "seed of the sample that the codec is trained on")
	f.BoolVar(&cfg.Force, "force", false, "go on where the memory is estimated not to suffice; replace a table of another name or form in the directory")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	if err := cmd.MarkFlagRequired("out"); err != nil {
		panic(err)
	}
	cmd.AddCommand(newVerify(), newUnpack(), newMerge())
	return cmd
}

func newVerify() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify DIR|redis://…",
		Short: "Check every page of a packed table or model and decode every row",
		Example: `  cachebench pack verify features.tc
  cachebench pack verify redis://10.0.0.1:6379/features`,
		Args: takes("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if experiment.IsPackedModel(args[0]) {
				_, err := present(cmd, asJSON, func(bar *progress) (*experiment.ModelInfo, error) {
					return experiment.VerifyModel(cmd.Context(), args[0], bar)
				}, report.VerifiedModel)
				return err
			}
			_, err := present(cmd, asJSON, func(bar *progress) (*experiment.VerifiedPages, error) {
				return experiment.VerifyPages(cmd.Context(), args[0], bar)
			}, report.VerifiedPages)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func newUnpack() *cobra.Command {
	var out string
	var asJSON, force bool
	cmd := &cobra.Command{
		Use:   "unpack DIR|redis://… --out FILE.npy|FOLDER",
		Short: "Write a packed table to an .npy or .safetensors file, or a packed model to a folder, as its files were",
		Example: `  cachebench pack unpack model.tc --out MODEL_DIR
  cachebench pack unpack features.tc --out features.npy
  cachebench pack unpack redis://10.0.0.1:6379/features --out features.npy`,
		Args: takes("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if experiment.UnpacksModel(args[0], out) {
				_, err := present(cmd, asJSON, func(bar *progress) (*experiment.ModelInfo, error) {
					return experiment.UnpackModel(cmd.Context(), args[0], out, force, bar)
				}, report.UnpackedModel)
				return err
			}
			_, err := present(cmd, asJSON, func(bar *progress) (*experiment.Packed, error) {
				return experiment.UnpackPages(cmd.Context(), args[0], out, force, bar)
			}, report.Unpacked)
			return err
		},
	}
	cmd.Flags().Var(&once{to: &out}, "out", "file to write: .npy, or .safetensors; of a model the folder for its files")
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	if err := cmd.MarkFlagRequired("out"); err != nil {
		panic(err)
	}
	return cmd
}

func newMerge() *cobra.Command {
	var folder string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "merge DIR|redis://…",
		Short: "Write the updated rows of a packed table into its pages",
		Long: `Write the updated rows of a packed table's log into the next generation of its pages,
and remove them from the log. Nobody else may have the table open for updates. A crash
leaves the old generation and the log, or the new generation. A cache that serves a
directory, or a cluster, merges by itself; this is for before pack, unpack and copies of
the directory, and for what is left when a cache has ended. The log of a table in a
cluster is a folder of the machine that updates it.`,
		Example: `  cachebench pack merge features.tc
  cachebench pack merge redis://10.0.0.1:6379/features --log /var/lib/features.log`,
		Args: takes("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := present(cmd, asJSON, func(bar *progress) (*experiment.MergedPages, error) {
				return experiment.MergePages(cmd.Context(), args[0], folder, bar)
			}, report.MergedPages)
			return err
		},
	}
	cmd.Flags().Var(&once{to: &folder}, "log", "folder of the log (default: delta in the directory)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
