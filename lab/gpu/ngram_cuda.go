//go:build cuda && linux

package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// The n-gram tables of ngram-decode and ngram-prefill: two layers of heads for 2-grams and 3-grams, 32 rows a token.
const (
	ngramHeads  = 8
	ngramLayers = 2
	// ngramBudget is the share of the table's bytes that is cached: 1/6, 4.2 GB of 96 million rows.
	ngramBudget = 6
	// ngramTrained is the share of a text, in percent, that the policy learns from; the rest is measured.
	ngramTrained = 80
	// longText is the tokens that are drawn from the text for a longer one, and longTimes how many times as long as the text that is at most.
	longText  = 10_000_000
	longTimes = 25

	// decodeSequences and prefillTokens are the tokens of a batch, if Options.Batch is not less.
	decodeSequences = 256
	prefillTokens   = 8192
	// decodeSteps are the different batches of decode, so many that their rows do not all lie in the device's caches.
	decodeSteps = 48
	// prefillBatches are the different batches of prefill.
	prefillBatches = 12
	// prefillRuns run before the measured ones: the cache learns how to share a batch with the host.
	prefillRuns = 40
	uva         = "zero-copy of all rows, uncompressed"
	// uvaSorted is the faster of that and of reading them in the order of their addresses, where sorting them is not counted.
	uvaSorted = "zero-copy of all rows, uncompressed, sorted"
)

var (
	ngramOrders = []int{2, 3}
	ngramFloat8 = cache.Float8{Values: dtype.Float8E4M3FN, Scales: dtype.Float8E8M0FNU, Block: workload.Float8Block}
)

// ngrams measures the steps of a language model's server that reads n-gram tables: ngram-decode and ngram-prefill.
func (r *runner) ngrams() {
	const slack = 4 << 30
	rowBytes, skip := int64(workload.NgramRowBytes), ""
	rows := r.o.LargeTableBytes / rowBytes
	if have, need := get(numa.Available()), 2*rows*rowBytes+slack; have < need {
		skip = fmt.Sprintf("host memory (%d bytes available) must be %d for two tables", have, need)
	}
	if r.o.Tokens == "" {
		skip = "tokens (no file) must be a text"
	}
	var text []int32
	if skip == "" {
		text = get(workload.LoadTokens(r.o.Tokens))
		if least := (r.promptTokens()*100/(100-ngramTrained)/100 + 1) * 100; len(text) < least {
			skip = fmt.Sprintf("tokens (%d in %s) must be at least %d: a fifth of them is measured", len(text), r.o.Tokens, least)
		}
	}
	if skip != "" {
		for _, name := range ngramCases {
			if r.has(name) {
				r.skip(name, "%s", skip)
			}
		}
		return
	}
	hash := get(workload.NewNgramHash(workload.NgramHashOptions{Orders: ngramOrders, Heads: ngramHeads, Layers: ngramLayers, Rows: rows, Seed: seed}))
	host := get(r.d.AllocHost(rows*rowBytes, "n-gram table"))
	defer r.d.Free(host)
	pattern(get(workload.Float8Rows(int(min(rows, patternBytes/rowBytes)), workload.NgramElements, seed))).fillApart(host.Bytes(), int(rowBytes))
	r.ngramText(host, rows, hash, text, []ngramTier{{codec: codecName}, {codec: registry.None}, {codec: partsCodec}, {codec: partsCodec, tier: cache.Packed}}, "")
	r.ngramText(host, rows, hash, workload.SampleText(text, min(longText, longTimes*len(text)), seed), []ngramTier{{codec: codecName}, {codec: partsCodec}}, ", drawn text")
}

// sequences and promptTokens are the tokens of a batch of decode and prefill.
func (r *runner) sequences() int    { return min(decodeSequences, r.o.Batch) }
func (r *runner) promptTokens() int { return min(prefillTokens, r.o.Batch) }

// ngramTier is how an n-gram table lies in host memory.
type ngramTier struct {
	codec cache.Codec
	tier  cache.HostTier
}

func (t ngramTier) String() string {
	if t.tier == cache.Packed {
		return string(t.codec) + " packed"
	}
	return string(t.codec)
}

// ngramText measures a text.
func (r *runner) ngramText(host device.Buffer, rows int64, hash *workload.NgramHash, text []int32, tiers []ngramTier, label string) {
	trained := len(text) / 100 * ngramTrained
	for _, tier := range tiers {
		n := &ngrams{text: text, trained: trained, hash: hash, host: host, codec: tier.String() + label}
		start := time.Now()
		n.served = r.serveNgrams(host, rows, tier, n.training(r.promptTokens()))
		n.opened = time.Since(start)
		err := try(func() {
			if r.has("ngram-decode") {
				n.decode()
				r.free()
			}
			if r.has("ngram-prefill") {
				n.prefill()
				r.free()
			}
		})
		must(errors.Join(err, n.cache.Close()))
	}
}

func (r *runner) serveNgrams(host device.Buffer, rows int64, tier ngramTier, training admission.Training) *served {
	rowBytes := workload.NgramRowBytes
	s := &served{runner: r, source: host.Bytes(), rowBytes: rowBytes, rows: rows}
	t := get(cache.FromBytes("ngrams", workload.Float8Row(workload.NgramElements), s.source, rowBytes))
	s.cache = get(cache.New(cache.Options{
		Tables: []cache.Table{t}, Devices: cache.DeviceOptions{Backend: "cuda"}, Codec: tier.codec, Seed: seed, Budget: host.Size() / ngramBudget,
		Host: cache.HostOptions{Tier: tier.tier, NoEqualRows: true}, Admission: cache.AdmissionOptions{Training: training},
	}))
	s.gatherer = gathererOf(s.cache, 0, r.stream)
	s.cached = get(s.cache.Stats()).Tables[0].CachedRows
	return s
}

// ngrams are the lookups of a text, and a cache that has learnt from its first part.
type ngrams struct {
	*served
	text    []int32
	trained int // tokens
	hash    *workload.NgramHash
	host    device.Buffer
	codec   string
	opened  time.Duration
}

// training yields the rows of the first part of the text, those of so many tokens at a time: of 8 million tokens they are 2 GB.
func (n *ngrams) training(tokens int) admission.Training {
	return func(yield func(int, []int64) bool) {
		w := get(workload.NewNgram(workload.NgramOptions{Text: n.text, To: n.trained, Hash: n.hash, Phase: workload.Prefill, BatchSize: tokens}))
		var rows []int64
		for i := range w.Batches() {
			if rows = w.Batch(i, rows[:0]); !yield(0, rows) {
				return
			}
		}
	}
}

// batches returns the rows of at most so many batches of a part of the text, whole ones only.
func (n *ngrams) batches(from, to, tokens int, phase workload.Phase, most int) (all [][]int64) {
	w := get(workload.NewNgram(workload.NgramOptions{Text: n.text, From: from, To: to, Hash: n.hash, Phase: phase, BatchSize: tokens, Batches: most}))
	whole := tokens * n.hash.RowsPerToken()
	for i := range w.Batches() {
		if b := w.Batch(i, make([]int64, 0, whole)); len(b) == whole {
			all = append(all, b)
		}
	}
	return all
}

// split returns the rows of the batches that are cached, and the others.
func (n *ngrams) split(batches [][]int64) (hits, misses []int64) {
	for _, b := range batches {
		for i, e := range get(n.cache.Explain(0, b)) {
			if e.Cached {
				hits = append(hits, b[i])
			} else {
				misses = append(misses, b[i])
			}
		}
	}
	return hits, misses
}

// chunks divides rows into batches of n.
func chunks(rows []int64, n int) (all [][]int64) {
	for len(rows) >= n && n > 0 {
		all, rows = append(all, rows[:n]), rows[n:]
	}
	return all
}

// replayed returns the median seconds of a replay of what enqueue enqueues for row numbers in device memory, which are others in each replay. check is
// called with those of the last one.
func (n *ngrams) replayed(lists [][]int64, enqueue func(rows device.Buffer) error, check func(rows []int64)) float64 {
	if len(lists) == 0 {
		return 0
	}
	length := int64(8 * len(lists[0]))
	all, ids := n.put(asBytes(slices.Concat(lists...))), n.alloc(length)
	stream, turn := n.stream.(*cuda.Stream), 0
	next := func() error {
		turn = (turn + 1) % len(lists)
		return stream.Copy(ids, all.Slice(int64(turn)*length, int64(turn+1)*length))
	}
	must(next())
	graph := get(stream.Capture(false, func() error { return enqueue(ids) }))
	defer graph.Close()
	seconds := n.timeAfter(max(5*n.o.Runs, len(lists)), next, func(int) error { return graph.Launch(stream) })
	check(lists[turn])
	return seconds
}

// gathered returns the seconds of a captured Gather.
func (n *ngrams) gathered(lists [][]int64, out device.Buffer) float64 {
	var batch *cache.Batch
	seconds := n.replayed(lists, func(rows device.Buffer) (err error) {
		batch, err = n.begin(rows, out.Slice(0, rows.Size()/8*int64(n.rowBytes)))
		return err
	}, func(rows []int64) { check(n.d, "replay", out, n.source, rows, n.rowBytes) })
	if batch != nil {
		must(batch.Wait())
		batch.Release()
	}
	return seconds
}

// values enqueues the conversion of rows to bfloat16, in the kernel that reads them.
func (n *ngrams) values(rows, out device.Buffer) (*cache.Batch, error) {
	return n.view.Enqueue(context.Background(), n.handle, cache.Request{
		DeviceRows: rows, DeviceOut: out.Slice(0, rows.Size()/8*workload.NgramElements*2), As: dtype.BFloat16, Float8: ngramFloat8,
	})
}

// checkValues compares the first rows of an output with their conversion on the host.
func (n *ngrams) checkValues(out device.Buffer, rows []int64) {
	rows = rows[:min(len(rows), 2000)]
	const columns = workload.NgramElements
	got, want := make([]byte, len(rows)*columns*2), make([]byte, len(rows)*columns*2)
	must(device.Download(n.d, got, out.Slice(0, int64(len(got)))))
	f, wide, sums := reduce.Float8(ngramFloat8), make([]byte, 4*columns), make([]float32, columns)
	f.Factor = 1
	for i, row := range rows {
		f.Load(wide, n.source[row*int64(n.rowBytes):][:n.rowBytes])
		reduce.Convert(want[i*columns*2:][:columns*2], dtype.BFloat16, wide, dtype.Float32, sums)
	}
	if !bytes.Equal(got, want) {
		must(errors.New("rows converted to bfloat16 differ from those on the host"))
	}
}

func (n *ngrams) ngramResult(name, codec string, rows int, seconds float64) Result {
	x := n.result(name, rows)
	x.Codec, x.Unit, x.DType, x.Value = codec, "us", dtype.Float8E4M3FN.String(), seconds*1e6
	t := get(n.cache.Stats()).Tables[0]
	x.Compression = float64(t.RawBytes) / float64(max(1, t.StoredBytes))
	return x
}

// sortedRows returns copies of the lists in the order of the rows' addresses.
func sortedRows(lists [][]int64) (all [][]int64) {
	for _, rows := range lists {
		all = append(all, slices.Sorted(slices.Values(rows)))
	}
	return all
}

// decode measures captured steps of sequences that each read a token, beside the slower of their hits and their misses alone, and beside reading all
// rows from page-locked memory. Steps of text that the policy has learnt from are all hits.
func (n *ngrams) decode() {
	fresh := n.batches(n.trained, len(n.text), n.sequences(), workload.Decode, decodeSteps)
	hits, misses := n.split(fresh)
	length := n.sequences() * n.hash.RowsPerToken()
	share := float64(len(hits)) / float64(len(fresh)*length)
	out := n.alloc(int64(length * workload.NgramElements * 2))
	own := n.gathered(fresh, out)
	ofHits, ofMisses := n.gathered(chunks(hits, len(hits)/len(fresh)), out), n.gathered(chunks(misses, len(misses)/len(fresh)), out)
	x := n.ngramResult("ngram-decode", n.codec, length, own)
	x.Baseline, x.BaselineValue = "the slower of its hits and its misses alone", max(ofHits, ofMisses)*1e6
	x.Further = append(n.otherWays(fresh, out), Further{Name: "its hits alone", Value: ofHits * 1e6}, Further{Name: "its misses alone", Value: ofMisses * 1e6})
	x.Detail = fmt.Sprintf("%.3f hits, captured; hits alone %.1f, misses alone %.1f, %s %.1f, as bfloat16 %.1f; %d rows, %d cached, opened in %.1f s",
		share, ofHits*1e6, ofMisses*1e6, uva, x.Further[0].Value, x.Further[1].Value, n.rows, n.cached, n.opened.Seconds())
	n.add(x)

	known, _ := n.split(n.batches(max(0, n.trained-n.sequences()*decodeSteps), n.trained, n.sequences(), workload.Decode, decodeSteps))
	lists := chunks(known, length)
	if len(lists) == 0 {
		return
	}
	x = n.ngramResult("ngram-decode", n.codec+", hits", length, n.gathered(lists, out))
	x.Further = n.otherWays(lists, out)
	x.Baseline, x.BaselineValue = uva, x.Further[0].Value
	x.Detail = fmt.Sprintf("all hits, captured; as bfloat16 %.1f", x.Further[1].Value)
	n.add(x)
	converted := n.ngramResult("ngram-decode", n.codec+", hits, bfloat16", length, x.Further[1].Value*1e-6)
	converted.Baseline, converted.BaselineValue, converted.Detail = uva, x.BaselineValue, "all hits, captured, converted by the kernel that reads"
	n.add(converted)
}

// otherWays measures captured reads of the same rows uncompressed from page-locked memory, and as bfloat16, in microseconds.
func (n *ngrams) otherWays(lists [][]int64, out device.Buffer) []Further {
	plain := n.replayed(lists, func(rows device.Buffer) error {
		return n.stream.Launch(&kernels.Gather{Mem: n.host, Rows: rows, Out: out.Slice(0, rows.Size()/8*int64(n.rowBytes)), RowBytes: n.rowBytes})
	}, func(rows []int64) { check(n.d, "zero-copy", out, n.source, rows, n.rowBytes) })
	var batch *cache.Batch
	values := n.replayed(lists, func(rows device.Buffer) (err error) {
		batch, err = n.values(rows, out)
		return err
	}, func(rows []int64) { n.checkValues(out, rows) })
	must(batch.Wait())
	batch.Release()
	return []Further{{Name: uva, Value: plain * 1e6}, {Name: "as bfloat16", Value: values * 1e6}}
}

// prefill measures batches of a prompt, beside reading all rows from page-locked memory.
func (n *ngrams) prefill() {
	lists := n.batches(n.trained, len(n.text), n.promptTokens(), workload.Prefill, prefillBatches)
	length := n.promptTokens() * n.hash.RowsPerToken()
	var ids []device.Buffer
	for _, rows := range lists {
		ids = append(ids, n.put(asBytes(rows)))
	}
	out := n.alloc(int64(length * workload.NgramElements * 2))
	rowsOut := out.Slice(0, int64(length*n.rowBytes))
	timed := func(runs int, enqueue func(rows device.Buffer) (*cache.Batch, error)) float64 {
		var pending []*cache.Batch
		seconds := n.timeAfter(runs, nil, func(i int) error {
			b, err := enqueue(ids[i%len(ids)])
			if b != nil {
				pending = append(pending, b)
			}
			return err
		})
		for _, b := range pending {
			must(b.Wait())
		}
		return seconds
	}
	runs := max(2*len(ids), n.o.Runs)
	last := lists[(warmups+runs-1)%len(lists)]
	gather := func(rows device.Buffer) (*cache.Batch, error) { return n.begin(rows, rowsOut) }
	timed(prefillRuns, gather)
	before := get(n.cache.Stats())
	own := timed(runs, gather)
	after := get(n.cache.Stats())
	check(n.d, "Gather", out, n.source, last, n.rowBytes)
	plain := timed(runs, func(rows device.Buffer) (*cache.Batch, error) {
		return nil, n.stream.Launch(&kernels.Gather{Mem: n.host, Rows: rows, Out: rowsOut, RowBytes: n.rowBytes})
	})
	check(n.d, "zero-copy", out, n.source, last, n.rowBytes)
	inOrder := sortedRows(lists)
	unsorted := ids
	ids = nil
	for _, rows := range inOrder {
		ids = append(ids, n.put(asBytes(rows)))
	}
	ordered := timed(runs, func(rows device.Buffer) (*cache.Batch, error) {
		return nil, n.stream.Launch(&kernels.Gather{Mem: n.host, Rows: rows, Out: rowsOut, RowBytes: n.rowBytes})
	})
	check(n.d, "zero-copy in order", out, n.source, inOrder[(warmups+runs-1)%len(lists)], n.rowBytes)
	ids = unsorted
	values := timed(runs, func(rows device.Buffer) (*cache.Batch, error) { return n.values(rows, out) })
	n.checkValues(out, last)
	x := n.ngramResult("ngram-prefill", n.codec, length, own)
	x.Baseline, x.BaselineValue = uvaSorted, min(plain, ordered)*1e6
	x.Further = []Further{{Name: "as bfloat16", Value: values * 1e6}, {Name: uva, Value: plain * 1e6}}
	done, how := after.Sub(before).Tables[0], after.Tables[0].MissStrategy[0]
	x.Detail = fmt.Sprintf("%.3f hits; misses %s, %.2f of them by the host; as bfloat16 %.1f; %d rows, %d cached",
		float64(done.Hits)/float64(done.Lookups), how.Strategy, how.Fraction, values*1e6, n.rows, n.cached)
	n.add(x)
	converted := n.ngramResult("ngram-prefill", n.codec+", bfloat16", length, values)
	converted.Baseline, converted.BaselineValue, converted.Detail = x.Baseline, x.BaselineValue, "converted by the kernel that reads, or from scratch memory"
	n.add(converted)
}
