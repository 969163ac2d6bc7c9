package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/workload"
)

// addNgram defines the flags of n-gram workloads for commands that measure caches.
func addNgram(f *pflag.FlagSet, n *experiment.Ngram) {
	f.StringVar(&n.Workload, "workload", "", "instead of sampling; ngram: look up n-gram tables of a language model that reads --tokens; embedding: bags of rows by a power law")
	f.Int64Var(&n.Rows, "rows", 0, "rows of all n-gram tables together, shared evenly by layers, orders and heads")
	f.Lookup("rows").DefValue = fmt.Sprint("those of --features, else ", workload.NgramRows)
	addNgramSpec(f, &n.NgramSpec)
}

// addNgramSpec defines the flags of n-gram workloads that all commands have.
func addNgramSpec(f *pflag.FlagSet, s *workload.NgramSpec) {
	f.Var(&once{to: &s.Tokens}, "tokens", "text of an n-gram workload as token numbers: FILE.npy of integers")
	f.IntSliceVar(&s.Orders, "orders", nil, "lengths of the n-grams (default 2,3)")
	f.IntVar(&s.Heads, "heads", 0, "rows of an n-gram in each layer (default 8)")
	f.IntVar(&s.Layers, "layers", 0, "layers with n-gram tables (default 1)")
	f.StringVar(&s.Phase, "phase", "", fmt.Sprintf("decode (default): a batch is one token each of --batch-size sequences (%d); prefill: --batch-size tokens in a row (%d)",
		workload.DecodeSequences, workload.PrefillTokens))
	f.IntVar(&s.TextTokens, "text-tokens", 0, "read a text of so many tokens instead, drawn from the bigram statistics of --tokens")
}
