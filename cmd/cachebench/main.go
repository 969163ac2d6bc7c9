// Command cachebench studies a compressed tensor cache: what hit rate, how many bytes saved and how fast, with which
// policy and codec, on the user's data and access pattern.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// errMismatch ends a run whose rows differed from their source: the result is printed, the exit status is 1.
var errMismatch = errors.New("rows differ from their source")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(os.Stderr, "cachebench:", err)
		stop()
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "cachebench",
		Short:         "Study a GPU-resident compressed tensor cache on your data and access pattern",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRun(), newCompress())
	return root
}
