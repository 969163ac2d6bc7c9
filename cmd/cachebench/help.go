package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroups are the flags of all commands as --help lists them, under headings. A flag that several commands have is in the same group in each.
var flagGroups = []struct{ heading, flags string }{
	{"Data", "features dtype cast row-elements generate graph vertices data-seed name trace format trace-type-params from to popularity tables"},
	{"Workload", `ids workload fanouts weighted bag pooled tokens rows orders heads layers phase text-tokens batch-size batches train-batches drift
		gets misses limit partial mix turnover active degree row-bytes seed`},
	{"Cache", `target-hit budget policy codec cold link no-equal-rows resident max-overflow buddy refresh-batches refresh-interval refresh-churn refresh-bytes
		sample-rate sizes unit-size refresh-requests mrc shards-rate shards-ids points attach`},
	{"Tiers", `host-tier host-memory host-sizes host-nodes prefetch cold-cache cold-cache-bytes page order stage scratch log rows-per-second
		cold-bandwidth cold-reads-per-second cold-latency`},
	{"Devices", "device devices gpus gpu-memory placement rates host-threads workers scale measure declare batch table-bytes runs"},
	{"Output", `out capture explain sweep seeds check verify bounds alpha title date json metrics-addr log-level config force help version`},
}

// helpWidth is how many columns --help takes.
const helpWidth = 120

// groupedFlags returns the flags of a command for --help, under the headings of flagGroups.
func groupedFlags(cmd *cobra.Command) string {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.AddFlagSet(cmd.LocalFlags())
	var b strings.Builder
	for _, g := range flagGroups {
		of := pflag.NewFlagSet("", pflag.ContinueOnError)
		of.SortFlags = false
		for name := range strings.FieldsSeq(g.flags) {
			if f := all.Lookup(name); f != nil {
				of.AddFlag(f)
			}
		}
		if of.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n\n%s:\n%s", g.heading, strings.TrimRight(of.FlagUsagesWrapped(helpWidth), "\n"))
		}
	}
	return b.String()
}

// groupHelp has --help of all commands list flags in groups.
func groupHelp(root *cobra.Command) {
	cobra.AddTemplateFunc("groupedFlags", groupedFlags)
	const plain = "\n\nFlags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), plain, "{{groupedFlags .}}", 1))
}
