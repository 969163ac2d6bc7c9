// Command tensorcached is a cache in a process of its own: it loads tables once and serves their rows to the processes of a machine, to clients of
// Redis, and over HTTP what it knows of itself. docs/service.md describes it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/internal/flaghelp"
	"github.com/tensorcache/tensorcache/internal/version"
	"github.com/tensorcache/tensorcache/serve/daemon"
)

// garbage is how large garbage may grow, in percent of the memory in use: tables are large.
const garbage = 25

// errPlan ends --check where the program would not work: the plan has been printed.
var errPlan = errors.New("it would not work")

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if err := newRoot().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "tensorcached:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	var check, asJSON bool
	var ids string
	root := &cobra.Command{
		Use:   "tensorcached",
		Short: "A cache of tensor rows for all processes of a machine",
		Long: `A cache of tensor rows for all processes of a machine.

It loads the tables, prints one line when it is ready, and serves until SIGTERM.
SIGHUP has it read its configuration again.`,
		Example: `  tensorcached --features users.npy,items.npy --gpu-memory 4GiB --listen unix:/tmp/tc.sock
  tensorcached --features users.npy --gpu-memory 64MiB --device host --resp 127.0.0.1:6379 --http 127.0.0.1:8080
  tensorcached --config tensorcached.yaml --check
  tensorcached --features users.npy --gpu-memory 64MiB --check --ids lookups.txt`,
		Version:       fmt.Sprintf("%s, %s %s/%s", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("argument (%q) must be a command or the value of a flag: tensorcached --help lists them", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			args := os.Args[1:]
			c, err := daemon.Load(args)
			if err != nil {
				return err
			}
			if ids != "" && !check {
				return errors.New("--ids means nothing without --check")
			}
			if !check {
				return daemon.Run(c, daemon.Program{Args: args, Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), Version: version.Number})
			}
			p, err := c.Check()
			if err != nil {
				return err
			}
			of := checked{Plan: p}
			if ids != "" {
				if of.Hits, err = planHits(cmd.Context(), c, ids); err != nil {
					return err
				}
			}
			if asJSON {
				err = printJSON(cmd, of)
			} else if err = p.Write(cmd.OutOrStdout()); err == nil && of.Hits != nil {
				err = writeHits(cmd.OutOrStdout(), of.Hits)
			}
			if err == nil && len(p.Problems) > 0 {
				err = errPlan
			}
			return err
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	f := root.Flags()
	f.SortFlags = false
	f.String("config", "", "FILE.yaml or FILE.json with these flags as keys, underscores for dashes, and a list of tables; flags override it")
	f.BoolVar(&check, "check", false, "say what would happen, with how much memory of which kind, and end: exit status 1 if it would not work")
	f.StringVar(&ids, "ids", "", "with --check: row numbers as they will be looked up, FILE with one a line, FILE.npy or a trace, one FILE for each table: also say what they hit")
	f.BoolVar(&asJSON, "json", false, "with --check: print one JSON object")
	f.AddFlagSet(daemon.Flags(new(daemon.Config)))
	root.AddCommand(remotes()...)
	flaghelp.Use(root, flagGroups)
	return root
}

// flagGroups are the flags of all commands as --help lists them, under headings.
var flagGroups = []flaghelp.Group{
	{Heading: "Tables", Flags: "features table codec link seed no-equal-rows"},
	{Heading: "Cache", Flags: `gpu-memory policy cold refresh-interval refresh-churn refresh-bytes sample-rate sample-keys snapshot snapshot-interval state`},
	{Heading: "Host memory", Flags: "host-memory host-tier host-nodes host-threads overlay"},
	{Heading: "Devices", Flags: "device devices gpus placement rates workers"},
	{Heading: "Processes of this machine", Flags: "listen max-attached max-lanes max-scratch stopped-after evict-stopped"},
	{Heading: "Redis and HTTP", Flags: `resp resp-clients resp-memory resp-tls-cert resp-tls-key resp-password-file resp-admin-password-file resp-users resp-timeout audit-log http http-token-file insecure`},
	{Heading: "Logs, metrics and traces", Flags: `log-level log-format otlp-endpoint otlp-protocol traces-exporter metrics-exporter trace-rate trace-ratio name`},
	{Heading: "Running tensorcached", Flags: "connect timeout rows bytes file in-place"},
	{Heading: "Start and end", Flags: "config check ids json drain-timeout lame-duck max-memory-pressure force help version"},
}

func printJSON(cmd *cobra.Command, v any) error {
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetIndent("", "  ")
	return e.Encode(v)
}
