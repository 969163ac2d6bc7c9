package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/serve"
	"github.com/tensorcache/tensorcache/slab"
)

// defaultSocket is the socket of the unit file in deploy/.
const defaultSocket = "unix:/run/tensorcached/tensorcached.sock"

// remote is a command to a running tensorcached.
type remote struct {
	use, short, example string
	timeout             time.Duration
	flags               func(*cobra.Command)
	do                  func(context.Context, *cobra.Command, *serve.Control) error
}

// command returns the command, with the flags that all have.
func (r remote) command() *cobra.Command {
	cmd := &cobra.Command{Use: r.use, Short: r.short, Example: r.example}
	address, timeout := "", time.Duration(0)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%s: argument (%q) must be the value of a flag: tensorcached %s --help lists them", cmd.Name(), args[0], cmd.Name())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		c, err := serve.Dial(ctx, address, "tensorcached "+cmd.Name())
		if err != nil {
			if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("--connect (%s) must be the --listen of a running tensorcached: nobody listens there", address)
			}
			return fmt.Errorf("--connect: %w", err)
		}
		defer c.Close()
		if err = r.do(ctx, cmd, c); err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("it took longer than --timeout (%v): %w", timeout, err)
		}
		return err
	}
	cmd.Flags().StringVar(&address, "connect", defaultSocket, "the socket of a running tensorcached: unix:PATH")
	cmd.Flags().DurationVar(&timeout, "timeout", r.timeout, "how long to wait")
	if r.flags != nil {
		r.flags(cmd)
	}
	return cmd
}

// remotes returns the commands to a running tensorcached.
func remotes() []*cobra.Command {
	var asJSON bool
	var name, rows, path, budget string
	jsonFlag := func(cmd *cobra.Command) { cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON") }
	all := []remote{
		{
			use: "status", short: "Say what a running tensorcached holds and has served", timeout: 10 * time.Second,
			example: "  tensorcached status --connect unix:/tmp/tc.sock --json", flags: jsonFlag,
			do: func(ctx context.Context, cmd *cobra.Command, c *serve.Control) error {
				s, err := c.Status(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd, s)
				}
				return writeStatus(cmd.OutOrStdout(), s)
			},
		},
		{
			use: "explain", short: "Say where rows are, or why they are not cached", timeout: 10 * time.Second,
			example: "  tensorcached explain --table users --rows 1,17,1000-1010",
			flags: func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&name, "table", "0", "the table's name or number")
				cmd.Flags().StringVar(&rows, "rows", "", "row numbers and ranges of them: 1,17,1000-1010")
				jsonFlag(cmd)
				if err := cmd.MarkFlagRequired("rows"); err != nil {
					panic(err)
				}
			},
			do: func(ctx context.Context, cmd *cobra.Command, c *serve.Control) error {
				list, err := setting.Rows("--rows", rows)
				if err != nil {
					return err
				}
				index, err := tableOf(ctx, c, name)
				if err != nil {
					return err
				}
				found, err := c.Explain(ctx, index, list)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd, found)
				}
				return writeExplanations(cmd.OutOrStdout(), found)
			},
		},
		{
			use: "refresh", short: "Run a refresh cycle now", timeout: 5 * time.Minute,
			do: func(ctx context.Context, _ *cobra.Command, c *serve.Control) error { return c.Refresh(ctx) },
		},
		{
			use: "snapshot", short: "Write the numbers of the cached rows to a file", timeout: 5 * time.Minute,
			flags: func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&path, "file", "", "FILE on the machine of tensorcached, an absolute path (default: its --snapshot)")
			},
			do: func(ctx context.Context, _ *cobra.Command, c *serve.Control) error {
				if path != "" && !strings.HasPrefix(path, "/") {
					return fmt.Errorf("--file (%s) must be an absolute path: tensorcached runs in another folder", path)
				}
				return c.Snapshot(ctx, path)
			},
		},
		{
			use: "gpu-memory", short: "Change the device memory for cached rows, until the next start", timeout: 5 * time.Minute,
			example: "  tensorcached gpu-memory --bytes 8GiB",
			flags: func(cmd *cobra.Command) {
				cmd.Aliases = []string{"budget"}
				cmd.Flags().StringVar(&budget, "bytes", "", "bytes of each device, such as 8GiB")
				if err := cmd.MarkFlagRequired("bytes"); err != nil {
					panic(err)
				}
			},
			do: func(ctx context.Context, cmd *cobra.Command, c *serve.Control) error {
				if cmd.CalledAs() == "budget" {
					fmt.Fprintln(cmd.ErrOrStderr(), "tensorcached: budget is gpu-memory now; the old name goes with the next release")
				}
				n, err := setting.Bytes("--bytes", budget)
				if err != nil {
					return err
				}
				return c.SetBudget(ctx, n)
			},
		},
		{
			use: "drain", short: "Let no further process attach, and wait until those attached have left", timeout: time.Hour,
			do: func(ctx context.Context, _ *cobra.Command, c *serve.Control) error { return c.Drain(ctx) },
		},
	}
	commands := []*cobra.Command{tableCommand()}
	for _, r := range all {
		commands = append(commands, r.command())
	}
	return commands
}

// tableCommand returns the command table, with its own commands.
func tableCommand() *cobra.Command {
	parent := &cobra.Command{Use: "table", Short: "Add, replace or drop a table of a running tensorcached"}
	for _, r := range []struct{ change, short, example string }{
		{"add", "Open a further table, in a cache of its own", "  tensorcached table add --table file=items.npy,name=items,gpu_memory=1GiB"},
		{"replace", "Replace the contents of a table while it is served", "  tensorcached table replace --table users --file users-2.npy"},
		{"drop", "Serve a table no longer", "  tensorcached table drop --table items"},
	} {
		change, asJSON := serve.TableChange{Change: r.change}, false
		var name, file string
		parent.AddCommand(remote{
			use: r.change, short: r.short, example: r.example, timeout: time.Hour,
			flags: func(cmd *cobra.Command) {
				f := cmd.Flags()
				f.StringVar(&name, "table", "", "the table's name or number")
				f.BoolVar(&change.Force, "force", false, "go on where attached processes lose the table, or memory is estimated not to suffice")
				f.BoolVar(&asJSON, "json", false, "print JSON")
				if r.change != "drop" {
					f.Lookup("table").Usage = "the table's name, or its description as --table has it at the start: `file=FILE`,name=N,gpu_memory=BYTES,…"
					f.StringVar(&file, "file", "", "FILE of its rows, instead of file= in --table")
				}
				if r.change == "replace" {
					f.BoolVar(&change.InPlace, "in-place", false, "update the rows that differ, one after the other, without a second copy: meanwhile a batch may have rows of both contents")
				}
			},
			do: func(ctx context.Context, cmd *cobra.Command, c *serve.Control) (err error) {
				if change.Table, err = describe(name, file); err != nil {
					return err
				}
				if change.Folder, err = os.Getwd(); err != nil {
					return err
				}
				done, err := c.ChangeTable(ctx, change)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd, map[string]string{"done": done})
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
				return err
			},
		}.command())
	}
	return parent
}

// describe returns the name or description of a table, as --table has it at the start.
func describe(table, file string) (string, error) {
	switch {
	case table == "" && file == "":
		return "", errors.New("--table must be given: a name, or file=FILE,name=N,…")
	case file == "":
		return table, nil
	case strings.Contains(table, "="):
		return "", errors.New("--file and a description in --table contradict each other: give file= in --table")
	}
	fields := []string{"file=" + file}
	if table != "" {
		fields = append(fields, "name="+table)
	}
	var b strings.Builder
	w := csv.NewWriter(&b)
	w.Write(fields)
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n"), w.Error()
}

// tableOf returns the index of a table by its name or number.
func tableOf(ctx context.Context, c *serve.Control, name string) (int, error) {
	s, err := c.Status(ctx)
	if err != nil {
		return 0, err
	}
	var names []string
	for _, t := range s.Tables {
		if t.Name == name || strconv.Itoa(t.Number) == name {
			return t.Number, nil
		}
		names = append(names, t.Name)
	}
	return 0, fmt.Errorf("--table (%q) must be one of %d: %s", name, len(s.Tables), strings.Join(names, ", "))
}

func writeStatus(w io.Writer, s *serve.Status) error {
	size := func(n int64) string { return humanize.IBytes(uint64(n)) }
	percent := func(part, of int64) string {
		if of == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of))
	}
	t := table.NewWriter()
	t.AppendHeader(table.Row{"table", "type", "codec", "rows", "row", "cached", "lookups", "hits"})
	for _, one := range s.Tables {
		t.AppendRow(table.Row{one.Name, one.DType, one.Codec, humanize.Comma(one.Rows), fmt.Sprintf("%d B", one.RowBytes), humanize.Comma(one.CachedRows),
			humanize.Comma(one.Lookups), percent(one.Hits, one.Lookups)})
	}
	state := "serving"
	if s.Draining {
		state = "draining"
	}
	fmt.Fprintf(w, "process %d, %s, %d attached\n%s\n", s.Process, state, s.Clients, t.Render())
	for _, c := range s.Attached {
		fmt.Fprintf(w, "attached: %s, process %d, for %v: %s lookups, %s hits", c.Name, c.Process, time.Since(c.Since).Round(time.Second),
			humanize.Comma(c.Lookups), percent(c.Hits, c.Lookups))
		if c.HoldsSeconds > 0 {
			fmt.Fprintf(w, "; it has held back changes for %.0f s", c.HoldsSeconds)
		}
		fmt.Fprintln(w)
	}
	for _, d := range s.Devices {
		fmt.Fprintf(w, "%s %d (%s): %s of rows, %s free, of %s", d.Backend, d.Index, d.Name, size(d.PayloadBytes), size(d.FreeBytes), size(d.BudgetBytes))
		if d.UnallocatedBytes > 0 {
			fmt.Fprintf(w, ", of which %s are not allocated: all rows fit in less", size(d.UnallocatedBytes))
		}
		fmt.Fprintln(w)
	}
	for what, text := range s.Errors {
		fmt.Fprintf(w, "%s: %s\n", what, text)
	}
	_, err := fmt.Fprintf(w, "host tier %s, host memory %s in all, %s lookups, %s hits, %d refresh cycles\n", size(s.HostBytes), size(s.HostTakenBytes), humanize.Comma(s.Lookups), percent(s.Hits, s.Lookups), s.Refresh.Cycles)
	return err
}

func writeExplanations(w io.Writer, all []serve.Explanation) error {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"row", "where", "stored", "slot", "frequency", "score", "victim's"})
	for _, e := range all {
		where := e.Tier // host, log or pages
		if e.TierSeconds > 0 {
			where += fmt.Sprintf(", for %.0f s", e.TierSeconds)
		}
		if e.Reason == slab.Cold.String() {
			where += ": never cached"
		} else {
			where += ": " + e.Reason
		}
		switch {
		case e.Overlay:
			where = "overlay"
		case e.Device != nil:
			where = fmt.Sprintf("device %d, for %.0f s", *e.Device, e.AgeSeconds)
		}
		frequency, score, victim := "-", "-", "-" // a policy that explains nothing
		if p := e.Policy; p != nil {
			frequency, score, victim = fmt.Sprintf("%.1f", p.Frequency), fmt.Sprintf("%.4g", p.Score), fmt.Sprintf("%.4g", p.Victim)
		}
		t.AppendRow(table.Row{e.Row, where, e.StoredBytes, e.SlotBytes, frequency, score, victim})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}
