package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// flagRule refuses flags that others make meaningless. Names are between spaces; NAME=VALUE is a flag that must have that value.
type flagRule struct {
	// flags are refused, each of them, if one of given is given and none of missing.
	flags, given, missing string
	// why is what the error says behind the flag.
	why string
}

// flagRules are those of all commands. A command that lacks the flags of given or missing has no such rule.
var flagRules = []flagRule{
	{flags: "explain capture attach resident max-overflow buddy metrics-addr log-level", given: "sweep", why: "means nothing with --sweep"},
	{flags: "capture attach resident max-overflow buddy", given: "explain", why: "means nothing with --explain"},
	{flags: "seeds", missing: "sweep", why: "means nothing without --sweep"},
	{flags: "vertices", given: "features", why: "and --features contradict each other"},
	{flags: "vertices", given: "graph", why: "and --graph contradict each other"},
	{flags: "fanouts weighted", given: "ids", why: "and --ids contradict each other"},
	{flags: "vertices fanouts weighted", given: "workload", why: "and --workload contradict each other"},
	{flags: "tokens rows orders heads layers phase text-tokens", missing: "workload=ngram", why: "means nothing without --workload ngram"},
	{flags: "verify cast", given: "attach", missing: "features", why: "with --attach needs --features: rows are compared with those of the file"},
	{flags: "refresh-churn refresh-bytes sample-rate", missing: "cold drift refresh-batches refresh-interval",
		why: "means nothing without --cold, --drift, --refresh-batches or --refresh-interval"},
	{flags: "ids fanouts", given: "trace", why: "and --trace contradict each other"},
	{flags: "shards-rate shards-ids points", missing: "mrc", why: "means nothing without --mrc"},
	{flags: "policy refresh-requests workers", given: "mrc", why: "means nothing with --mrc, which is LRU's"},
	{flags: "points", given: "sizes", why: "and --sizes contradict each other"},
	{flags: "gpus row-bytes batch table-bytes runs", given: "declare", why: "and --declare contradict each other: what is declared is not measured"},
	{flags: "gpus row-bytes batch table-bytes runs", missing: "measure", why: "means nothing without --measure"},
}

// checkRules returns what the rules say of a command's flags.
func checkRules(f *pflag.FlagSet) error {
	any := func(names string, is func(flag *pflag.Flag, value string) bool) bool {
		return slices.ContainsFunc(strings.Fields(names), func(name string) bool {
			name, value, _ := strings.Cut(name, "=")
			flag := f.Lookup(name)
			return flag != nil && is(flag, value)
		})
	}
	known := func(*pflag.Flag, string) bool { return true }
	given := func(flag *pflag.Flag, value string) bool {
		return flag.Changed && (value == "" || flag.Value.String() == value)
	}
	for _, r := range flagRules {
		if r.given != "" && !any(r.given, given) || r.missing != "" && (!any(r.missing, known) || any(r.missing, given)) {
			continue
		}
		for name := range strings.FieldsSeq(r.flags) {
			if f.Changed(name) {
				return fmt.Errorf("--%s %s", name, r.why)
			}
		}
	}
	return nil
}

// notZero refuses zeros, which would stand for defaults.
func notZero(f *pflag.FlagSet, names, least string) error {
	for name := range strings.FieldsSeq(names) {
		if flag := f.Lookup(name); flag.Changed && flag.Value.String() == "0" {
			return fmt.Errorf("--%s (0) must be %s", name, least)
		}
	}
	return nil
}
