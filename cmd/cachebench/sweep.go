package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
)

func newSweep() *cobra.Command {
	cfg := experiment.SweepConfig{Config: experiment.NewConfig()}
	var asJSON bool
	var configFile string
	cmd := &cobra.Command{
		Use:   "sweep DIR",
		Short: "Run a grid of policies, budgets, codecs and host tiers, and keep the results in a directory",
		Long: `Run a grid of policies, budgets, codecs and host tiers, and keep the results in a directory.

Each finished cell is a line of DIR/cells.jsonl. The same command continues an
interrupted sweep. When the sweep ends, DIR/cells.csv has its main figures.`,
		Example: `  cachebench sweep results --policy freq,static-freq --budget 1%,5%,10% --codec none,ibp4 --seeds 5
  cachebench report results`,
		Args: takes("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFlags(cmd, configFile); err != nil {
				return err
			}
			cfg.Dir = args[0]
			// What the cells have in common is checked with the first one.
			first := func(values []string) string { return strings.Join(values[:min(1, len(values))], "") }
			cfg.Policy, cfg.Budget, cfg.Codec, cfg.HostTier = first(cfg.Policies), first(cfg.Budgets), first(cfg.Codecs), first(cfg.HostTiers)
			bar := &sweepProgress{progress: newProgress(cmd.ErrOrStderr()), lines: cmd.ErrOrStderr(), dir: cfg.Dir}
			cells, err := experiment.Sweep(cmd.Context(), cfg, bar)
			bar.close()
			if err != nil {
				return err
			}
			err = show(cmd.OutOrStdout(), asJSON, cells, report.Sweep)
			var differ, verified int64
			for _, c := range cells {
				differ, verified = differ+c.Result.Mismatches, verified+c.Result.VerifiedRows
			}
			if err == nil && differ > 0 {
				err = fmt.Errorf("%w: %d of %d", errMismatch, differ, verified)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&cfg.Budgets, "budget", []string{cfg.Budget}, "device memory per device: 1% of the table's raw bytes, or 64MiB")
	f.StringSliceVar(&cfg.Policies, "policy", []string{cfg.Policy}, "admission: "+strings.Join(admission.Names(), ", "))
	f.StringSliceVar(&cfg.Codecs, "codec", []string{cfg.Codec}, strings.Join(registry.Usage(), ", "))
	f.StringSliceVar(&cfg.HostTiers, "host-tier", []string{cfg.HostTier}, "layout of the rows in host memory: inplace, packed")
	f.IntVar(&cfg.Seeds, "seeds", 1, "how often to run the grid: with --seed, --seed + 1 and so on")
	f.AddFlagSet(runFlags(&cfg.Config))
	f.BoolVar(&asJSON, "json", false, "print a JSON array of the cells")
	f.StringVar(&configFile, "config", "", "FILE.json with these flags as keys, underscores for dashes; flags override it")
	return cmd
}

// sweepProgress prints a line for each cell.
type sweepProgress struct {
	*progress
	lines io.Writer
	dir   string
}

// Cells implements experiment.SweepProgress.
func (p *sweepProgress) Cells(done, total int) {
	if done > 0 {
		p.Notice(fmt.Sprintf("%s has %d of %d cells already", p.dir, done, total))
	}
	p.keep(done, total)
}

// Done implements experiment.SweepProgress.
func (p *sweepProgress) Done(c *experiment.Cell, done, total int, left time.Duration) {
	p.keep(done, total)
	p.Notice(fmt.Sprintf("%d/%d %v: hit rate %.2f %%, %.1f s; %v left", done, total, c.Point(), 100*c.Result.Results.HitRatio, c.Seconds, left.Round(time.Second)))
}

// Notice implements experiment.SweepProgress.
func (p *sweepProgress) Notice(text string) {
	p.close()
	fmt.Fprintln(p.lines, text)
}

// keep says what an interrupt leaves.
func (p *sweepProgress) keep(done, total int) {
	hint := fmt.Sprintf("%d of %d cells are kept in %s, and the same command continues", done, total, p.dir)
	resume.Store(&hint)
}
