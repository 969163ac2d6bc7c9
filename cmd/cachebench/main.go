// Command cachebench studies a compressed tensor cache: what hit rate, how many bytes saved and how fast, with which
// policy and codec, on the user's data and access pattern.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/internal/flaghelp"
	"github.com/tensorcache/tensorcache/internal/version"
)

var (
	// errMismatch ends a run whose rows differed from their source: the result is printed, the exit status is 1.
	errMismatch = errors.New("rows differ from their source")
	// errInterrupted ends a run on SIGINT or SIGTERM.
	errInterrupted = errors.New("interrupted")
)

// resume says how an interrupted command goes on; nil: it does not.
var resume atomic.Pointer[string]

// interrupted returns errInterrupted and how to go on.
func interrupted() error {
	if hint := resume.Load(); hint != nil {
		return fmt.Errorf("%w; %s", errInterrupted, *hint)
	}
	return errInterrupted
}

// statusError is an error with an exit status of its own.
type statusError struct {
	error
	status int
}

// grace is how long an interrupted run may take to end by itself and to print what it has. Stages that do not look at the context, such
// as reading a large table, are cut off then.
const grace = 2 * time.Second

// garbage is how large garbage may grow, in percent of the memory in use: tables are large.
const garbage = 25

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	disarm := context.AfterFunc(ctx, func() {
		time.Sleep(grace)
		exit(interrupted())
	})
	defer disarm() // before stop, which cancels ctx
	root := newRoot()
	root.SetArgs(joinCold(os.Args[1:]))
	if err := root.ExecuteContext(ctx); err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			err = interrupted()
		}
		exit(err)
	}
}

func exit(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(os.Stderr, "cachebench:", line)
	}
	if s, ok := errors.AsType[statusError](err); ok {
		os.Exit(s.status)
	}
	os.Exit(1)
}

// takes refuses all but as many arguments as there are names. A command without any is told its files by flags.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		_, name, _ := strings.Cut(cmd.CommandPath(), " ")
		switch {
		case len(names) == 0 && len(args) > 0:
			return fmt.Errorf("%s: argument (%q) must be the value of a flag: %s --help lists them", name, args[0], cmd.CommandPath())
		case len(args) != len(names):
			return fmt.Errorf("%s: arguments (%d) must be %d: %s", name, len(args), len(names), strings.Join(names, " "))
		}
		return nil
	}
}

// takesFile accepts one file as the argument or as a flag, which says which.
func takesFile(flag string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		_, name, _ := strings.Cut(cmd.CommandPath(), " ")
		switch {
		case len(args) == 0:
			return nil
		case len(args) > 1 && cmd.HasAvailableSubCommands():
			return fmt.Errorf("%s: unknown sub-command (%q), and only one table can be named: %s --help", name, args[0], cmd.CommandPath())
		case len(args) > 1:
			return fmt.Errorf("%s: argument (%q) must be the value of a flag: %s --help lists them", name, args[1], cmd.CommandPath())
		case cmd.Flags().Changed(flag):
			return fmt.Errorf("%s: argument (%q) and --%s contradict each other: either is the file", name, args[0], flag)
		}
		return cmd.Flags().Set(flag, args[0])
	}
}

// backends says which are in the build, without loading a driver.
func backends() string {
	if info, ok := debug.ReadBuildInfo(); ok && runtime.GOOS == "linux" {
		for _, s := range info.Settings {
			if s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), "cuda") {
				return "CUDA and host backends"
			}
		}
	}
	return "host backend only"
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:               "cachebench",
		Short:             "Study a GPU-resident compressed tensor cache on your data and access pattern",
		Version:           fmt.Sprintf("%s, %s %s/%s, %s", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH, backends()),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return refuseEmpty(cmd.Flags()) },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	cobra.EnableCommandSorting = false
	root.AddCommand(newRun(), newPlan(), newSimulate(), newCompress(), newPack(), newTrace(), newReport(), newReproduce(), newDevices(), newDemo())
	root.AddCommand(renamedCommands()...)
	flaghelp.Use(root, flagGroups)
	for _, cmd := range root.Commands() {
		addRenamed(cmd)
	}
	return root
}
