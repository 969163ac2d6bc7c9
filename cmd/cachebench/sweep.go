package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
)

// sweepFlags take a list with --sweep: the axes of the grid.
var sweepFlags = []string{"gpu-memory", "policy", "codec", "host-tier"}

// list is a flag of text that --sweep takes as a list: of values between commas, of a config file, or of several flags. Elsewhere the last flag counts.
type list struct {
	pflag.Value
	given []string
}

// Set implements pflag.Value.
func (l *list) Set(value string) error {
	l.given = append(l.given, value)
	return l.Value.Set(value)
}

// Type implements pflag.Value.
func (*list) Type() string { return "stringSlice" }

// listOf returns the values of a flag of --sweep.
func listOf(f *pflag.FlagSet, name string) []string {
	l := f.Lookup(name).Value.(*list)
	text := l.String()
	if len(l.given) > 0 {
		text = strings.Join(l.given, ",")
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

// runSweep is run --sweep.
func runSweep(cmd *cobra.Command, cfg experiment.SweepConfig, asJSON bool) error {
	f := cmd.Flags()
	first := func(values []string) string { return strings.Join(values[:min(1, len(values))], "") }
	cfg.Policies, cfg.Budgets, cfg.Codecs, cfg.HostTiers = listOf(f, "policy"), listOf(f, "gpu-memory"), listOf(f, "codec"), listOf(f, "host-tier")
	// What the cells have in common is checked with the first one.
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
