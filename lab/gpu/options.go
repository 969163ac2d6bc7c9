package gpu

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/slab"
)

// Options say what Run measures. The zero value of a field is its default.
type Options struct {
	// Cases to run, by name; default all.
	Cases []string
	// Codecs are measured by hit-codecs, hit-parts and training-fetch, some of registry.Concrete; default all.
	Codecs []string
	// RowBytes are the row lengths, multiples of 4; default 256, 400, 512, 1024, 2408, 4096.
	RowBytes []int
	// TableBytes is the size of the tables, at least 1 MiB; default 2 GiB.
	TableBytes int64
	// LargeTableBytes is the size of the tables of gather-misses-large, training-fetch, ngram-decode and ngram-prefill, at least 1 MiB; default 16 GiB.
	LargeTableBytes int64
	// HostThreads are numbers of host threads for the misses of gather-misses-large, which is measured with each; default 15
	// and 4.
	HostThreads []int
	// Tokens is a text for workload.LoadTokens, which ngram-decode and ngram-prefill read. Default none: they are skipped. Of a text below 41,000 tokens, too, as a
	// fifth must be a batch of ngram-prefill.
	Tokens string
	// Batch is the number of rows of a large batch; default 200,000. A batch of ngram-decode or ngram-prefill has at most as many tokens.
	Batch int
	// Entries is the number of entries of the hashmap of lookup; default 20 million.
	Entries int
	// Runs is how often each batch is timed, after 3 untimed runs; default 10.
	Runs int
	// Log receives a line for each result; default none.
	Log io.Writer
	// Save, if not nil, is called with the unfinished report after each result and each case, so that a run that is killed leaves what
	// it measured. An error of Save ends the run.
	Save func(*Report) error
}

// Cases are the names of all cases.
var Cases = []string{
	"link", "device-copy", "hit-decode", "hit-codecs", "hit-parts", "miss-fetch", "gather-hits", "gather-hits-codecs", "gather-misses", "gather-80", "gather-misses-large", "lookup", "load",
	"small-batch", "small-batch-caller", "caller", "captured", "sampling", "refresh", "training-fetch",
	"pooled-hits", "pooled-gather", "pooled-80", "pooled-tables", "ngram-decode", "ngram-prefill",
	"buddy-hits", "buddy-overflow", "buddy-budget", "buddy-updates",
	"peer-hits", "buddy-peers", "pair-throughput", "pair-placement", "pair-refresh",
}

// PairCases are the cases that need two GPUs that read each other's memory.
var PairCases = []string{"peer-hits", "buddy-peers", "pair-throughput", "pair-placement", "pair-refresh"}

// ngramCases are measured together, on one table.
var ngramCases = []string{"ngram-decode", "ngram-prefill"}

// LargeRows are the row lengths of gather-misses-large, if they are among Options.RowBytes.
var LargeRows = []int{256, 512}

const (
	minTableBytes = 1 << 20
	maxBatch      = 1 << 24
)

// EnsureDefaults sets the fields that are zero to their defaults.
func (o *Options) EnsureDefaults() {
	orSlice(&o.Cases, slices.Clone(Cases))
	orSlice(&o.Codecs, registry.Concrete())
	orSlice(&o.RowBytes, []int{256, 400, 512, 1024, 2408, 4096})
	orSlice(&o.HostThreads, []int{15, 4})
	o.TableBytes = cmp.Or(o.TableBytes, 2<<30)
	o.LargeTableBytes = cmp.Or(o.LargeTableBytes, 16<<30)
	o.Batch = cmp.Or(o.Batch, 200_000)
	o.Entries = cmp.Or(o.Entries, 20_000_000)
	o.Runs = cmp.Or(o.Runs, 10)
	o.Log = cmp.Or(o.Log, io.Discard)
}

// orSlice sets an empty slice to its default.
func orSlice[T any](s *[]T, byDefault []T) {
	if len(*s) == 0 {
		*s = byDefault
	}
}

// Validate reports all options that are out of range at once.
func (o *Options) Validate() error {
	f := faults.List{Prefix: "bench: "}
	for _, c := range o.Cases {
		f.If(!slices.Contains(Cases, c), "case (%q) must be one of %s", c, strings.Join(Cases, ", "))
	}
	for _, c := range o.Codecs {
		f.If(!slices.Contains(registry.Concrete(), c), "codec (%q) must be one of %s", c, strings.Join(registry.Concrete(), ", "))
	}
	for _, n := range o.RowBytes {
		f.If(n < 4 || n > slab.MaxRowBytes || n%4 != 0, "row (%d bytes) must be a multiple of 4 from 4 to %d", n, slab.MaxRowBytes&^3)
	}
	for _, t := range []struct {
		what  string
		bytes int64
	}{{"table", o.TableBytes}, {"large table", o.LargeTableBytes}} {
		f.If(t.bytes < minTableBytes || t.bytes >= slab.MaxBytes, "%s (%d bytes) must be %d to 2^40 - 1", t.what, t.bytes, minTableBytes)
	}
	for _, n := range []struct {
		what      string
		have, max int
	}{{"batch", o.Batch, maxBatch}, {"entries", o.Entries, 1 << 31}, {"runs", o.Runs, 10_000}} {
		f.If(n.have < 1 || n.have > n.max, "%s (%d) must be 1 to %d", n.what, n.have, n.max)
	}
	for _, n := range o.HostThreads {
		f.If(n < 1 || n > 1024, "host threads (%d) must be 1 to 1024", n)
	}
	return f.Err()
}
