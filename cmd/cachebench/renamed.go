package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/internal/flagfile"
)

// Commands and flags that had other names in the release before. They are taken for one release, with a notice on standard error, and --help does not list them.

// renamedCommands are commands by their earlier names. What they print is what they printed.
func renamedCommands() []*cobra.Command {
	was := func(cmd *cobra.Command, use, now string) *cobra.Command {
		cmd.Use, cmd.Deprecated = use, "it is cachebench "+now+" now; the old name goes with the next release"
		return cmd
	}
	sweep, explain, capture := newRun(), newRun(), newRun()
	asFlag(sweep, "sweep", "")
	sweep.Args = takes("DIR")
	explain.Flags().Lookup("rows").Value = explain.Flags().Lookup("explain").Value // which are the rows of a table elsewhere
	asFlag(explain, "explain", "rows")
	capture.Flags().Var(capture.Flags().Lookup("capture").Value, "out", "")
	asFlag(capture, "capture", "out")
	return []*cobra.Command{
		was(newVerify(), "verify DIR", "pack verify"), was(newUnpack(), "unpack DIR --out FILE", "pack unpack"), was(newMerge(), "merge DIR", "pack merge"),
		was(newCompare(), "compare A B", "report compare"), was(sweep, "sweep DIR", "run --sweep DIR"), was(explain, "explain --rows LIST", "run --explain LIST"),
		was(capture, "capture --out FILE", "run --capture FILE"),
		moved("gpu-bench", "bench"), moved("drive", "drive"),
	}
}

// moved is a command that is one of module lab now, for developers: it says so and does nothing.
func moved(use, now string) *cobra.Command {
	return &cobra.Command{
		Use: use, Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("%s measures only, and is a command of the repository's module lab now: go -C lab run . %s", use, now)
		},
	}
}

// asFlag makes a command of run that sets a flag of it: to the argument, or by an earlier flag, which must be given.
func asFlag(cmd *cobra.Command, now, earlier string) {
	run := cmd.RunE
	if cmd.Args = takes(); earlier != "" {
		if err := cmd.MarkFlagRequired(earlier); err != nil {
			panic(err)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f := cmd.Flags()
		value := f.Lookup(now).Value.String()
		if earlier == "" {
			value = args[0]
		} else {
			f.Lookup(earlier).Changed = false
		}
		if err := f.Set(now, value); err != nil {
			return err
		}
		return run(cmd, args)
	}
}

// renamedFlags are the earlier names of flags, and what they are now.
var renamedFlags = map[string]string{"budget": "gpu-memory", "warmup-batches": "train-batches", "overflow": "max-overflow", "target": "resident"}

// addRenamed defines the earlier names of a command's flags. --layout buddy was --resident auto, unless --target gave the bytes of a slot.
func addRenamed(cmd *cobra.Command) {
	f := cmd.Flags()
	for old, now := range renamedFlags {
		if f.Lookup(now) != nil {
			flagfile.Rename(f, "cachebench", old, now)
		}
	}
	if f.Lookup("resident") == nil {
		return
	}
	f.Func("layout", "", func(value string) error {
		if value != "buddy" && value != "cached" {
			return errors.New("must be cached or buddy")
		}
		fmt.Fprintln(os.Stderr, "cachebench: --layout is --resident now; the old name goes with the next release")
		if value == "cached" || f.Changed("resident") {
			return nil
		}
		return f.Set("resident", "auto")
	})
	f.Lookup("layout").Hidden = true
}
