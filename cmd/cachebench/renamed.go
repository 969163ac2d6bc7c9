package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
var renamedFlags = map[string]string{"warmup-batches": "train-batches", "overflow": "max-overflow", "target": "resident", "layout": "resident"}

// addRenamed defines the earlier names of a command's flags.
func addRenamed(cmd *cobra.Command) {
	f := cmd.Flags()
	for old, now := range renamedFlags {
		if f.Lookup(now) == nil {
			continue
		}
		f.Func(old, "", func(value string) error {
			noteRenamed(old)
			return setRenamed(f, old, now, value)
		})
		f.Lookup(old).Hidden = true
	}
}

func noteRenamed(old string) {
	fmt.Fprintf(os.Stderr, "cachebench: --%s is --%s now; the old name goes with the next release\n", old, renamedFlags[old])
}

// renamedSettings gives settings of a config file with earlier names those of now, so that the command line goes before them.
func renamedSettings(f *pflag.FlagSet, settings []flagfile.Setting) (now []flagfile.Setting) {
	names := func(key string) bool {
		return slices.ContainsFunc(settings, func(s flagfile.Setting) bool { return s.Key == key })
	}
	for _, s := range settings {
		old := strings.ReplaceAll(s.Key, "_", "-")
		name, renamed := renamedFlags[old]
		if !renamed || strings.Contains(s.Key, "-") || f.Lookup(name) == nil {
			now = append(now, s)
			continue
		}
		noteRenamed(old)
		s.Key = strings.ReplaceAll(name, "-", "_")
		if old == "layout" {
			switch {
			case s.Value == "cached" || s.Value == "buddy" && (names("target") || names("resident")):
				continue
			case s.Value == "buddy":
				s.Value = "auto"
			default:
				s.Key = "layout" // which its flag refuses
			}
		}
		now = append(now, s)
	}
	return now
}

func setRenamed(f *pflag.FlagSet, old, now, value string) error {
	switch {
	case old != "layout":
		return f.Set(now, value)
	case value == "buddy":
		if f.Changed(now) { // by --target
			return nil
		}
		return f.Set(now, "auto")
	case value == "cached":
		return nil
	}
	return fmt.Errorf("must be cached or buddy")
}
