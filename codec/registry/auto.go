package registry

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/slab"
)

// Terms say what auto-selection is to predict for.
type Terms struct {
	// Rows is the length of the table, 0 for the sample's.
	Rows int64
	// Budget is the bytes that the table's rows and the codec's metadata can have, all devices together; 0 for a tenth of the table
	// and the metadata.
	Budget int64
	// Link is the bytes a second at which a GPU reads misses from the host tier; 0 for DefaultLink. NoLink: there is no GPU; hits
	// and misses are decoded by this machine's processors, whose speed is measured on the sample.
	Link float64
	// HitRatio, if not nil, returns the share of the lookups, 0 to 1, that hit where so many of the table's rows are cached.
	HitRatio func(rows float64) float64
	// Train, if not nil, trains a family in some faster way than its own; ok is false if it knows none. It is called for one family
	// after the other.
	Train func(f codec.Family) (c codec.Codec, ok bool, err error)
}

const (
	// DefaultLink is the link that codecs are chosen for where nothing else is known: PCIe 5 x16, as measured on an H200.
	DefaultLink = 55e9
	// NoLink, as a link, stands for none.
	NoLink = -1
)

// What the model assumes. The shares are of GPURate 1, the copying of rows as they are.
const (
	// gpuGather is the bytes of rows a second that a GPU copies from its memory as they are, measured on an H200: docs/performance.md.
	gpuGather = 1900e9
	// hitPower is the power of the cached share of the rows with which the hit rate grows where nobody knows better. The power laws of
	// bench/workload hit 40 % with 5 % of the rows cached: 0.3; uniform accesses would have 1.
	hitPower = 0.3
	// entryBytes is what a cached row takes beside its slot: a hashmap slot at its load.
	entryBytes = 20
	// Codecs are measured on so many rows and bytes of the sample.
	judgedRows  = 2048
	judgedBytes = 2 << 20
	// For a table of up to smallTable bytes, of which a codec can save little, codecs are trained on smallSample bytes, or smallRows rows
	// if they are more, and measured on as many others: the sample is all of a small table, and training on that would take
	// longer than everything else that loads it.
	smallTable  = 1 << 20
	smallSample = 8 << 10
	smallRows   = 64
	// Of codecs that are predicted to be as good but for this share, the one that decodes faster is chosen.
	judgedEqual = 0.005
	// measured is how long decoding is measured, three times, the best being taken.
	measuredTime = 2 * time.Millisecond
)

// Candidate is what auto-selection knows of a codec. Its JSON form is part of cachebench's output.
type Candidate struct {
	Codec string `json:"codec"`
	// Skipped is why it was passed over: the other fields are 0 then.
	Skipped string `json:"skipped,omitempty"`
	// Ratio is raw ÷ stored bytes of the sample, rows that do not shrink counted raw.
	Ratio         float64 `json:"ratio,omitempty"`
	MetadataBytes int64   `json:"metadata_bytes"`
	// HitRatio is the predicted one, and DecodeGBPerSecond how fast rows are written: declared for GPUs, else measured, on one core.
	HitRatio          float64 `json:"hit_ratio"`
	DecodeGBPerSecond float64 `json:"decode_gb_per_second,omitempty"`
	// HitGBPerSecond is what the choice is by: the bytes of hits that a second of batches delivers.
	HitGBPerSecond float64 `json:"hit_gb_per_second"`
}

// Choice is what auto-selection did. Its JSON form is part of cachebench's output.
type Choice struct {
	// Codec is the name of what was chosen, None for rows as they are.
	Codec string `json:"codec"`
	// Reason says why, in a sentence.
	Reason string `json:"reason"`
	// Candidates are all that were considered, the most predicted bytes of hits first: the chosen one is first or nearly as good.
	Candidates []Candidate `json:"candidates"`
}

// Pick trains every codec that loses nothing on the sample and returns the one that is predicted to deliver the most bytes of hits
// a second, nil for rows as they are. Codecs that cannot serve dtype, and those that no GPU can decode where one is to, are passed
// over. With the same sample and terms it picks the same, unless terms.Link is NoLink: then it measures.
//
// The model: of a second's batches, the share h of lookups hits: terms.HitRatio says, or else it grows with the share of the table that
// is cached, as a power of it. A GPU decodes hits at its codec's declared share of what copying takes, beside misses, whose stored bytes cross the link: the
// longer of the two is the time. Without a GPU hits and misses are decoded alike, at the speed measured.
func Pick(sample []byte, rowBytes int, of dtype.Type, terms Terms) (codec.Codec, Choice, error) {
	if rowBytes < 1 || rowBytes > slab.MaxRowBytes {
		return nil, Choice{}, fmt.Errorf("codec: row (%d bytes) must be 1 to %d", rowBytes, slab.MaxRowBytes)
	}
	if len(sample) == 0 || len(sample)%rowBytes != 0 {
		return nil, Choice{}, fmt.Errorf("codec: sample (%d bytes) must be a positive multiple of the row (%d bytes)", len(sample), rowBytes)
	}
	if terms.Rows == 0 {
		terms.Rows = int64(len(sample) / rowBytes)
	}
	if terms.Link == 0 {
		terms.Link = DefaultLink
	}
	judged := spread(sample, rowBytes, max(1, min(judgedRows, judgedBytes/rowBytes)), 0)
	if n := max(smallRows, smallSample/rowBytes); terms.Rows*int64(rowBytes) <= smallTable && 2*n <= len(sample)/rowBytes {
		sample, judged = spread(sample, rowBytes, n, 0), spread(sample, rowBytes, n, 1)
		terms.Train = nil // it would take longer, and train on all of the sample
	}
	families := concrete()
	codecs, candidates, errs := make([]codec.Codec, len(families)), make([]Candidate, len(families)), make([]error, len(families))
	var training sync.WaitGroup
	for i, f := range families {
		candidates[i].Codec = f.Name
		if terms.Link > 0 && f.GPURate == 0 {
			candidates[i].Skipped = "no GPU decodes it"
			continue
		}
		if terms.Train != nil {
			c, ok, err := terms.Train(f)
			if ok || err != nil {
				codecs[i], errs[i] = c, err
				continue
			}
		}
		training.Go(func() { codecs[i], errs[i] = f.Train(sample, rowBytes, of) })
	}
	training.Wait()
	for i, f := range families {
		if errors.Is(errs[i], codec.ErrDType) {
			candidates[i].Skipped = errs[i].Error()
			continue
		}
		if errs[i] != nil {
			return nil, Choice{}, fmt.Errorf("codec: %s: %w", f.Name, errs[i])
		}
		if codecs[i] == nil {
			continue
		}
		if err := judge(&candidates[i], f.GPURate, codecs[i], judged, rowBytes, terms); err != nil {
			return nil, Choice{}, fmt.Errorf("codec: %s: %w", f.Name, err)
		}
		if candidates[i].Ratio <= 1 { // rows as they are, by another name
			candidates[i] = Candidate{Codec: f.Name, Skipped: "no row shrinks"}
		}
	}
	plain := Candidate{Codec: None}
	if err := judge(&plain, 1, nil, judged, rowBytes, terms); err != nil {
		return nil, Choice{}, err
	}
	candidates, codecs = append(candidates, plain), append(codecs, nil)
	best := choose(candidates)
	choice := Choice{Codec: candidates[best].Codec, Reason: reason(candidates, best, terms), Candidates: candidates}
	picked := codecs[best]
	slices.SortStableFunc(choice.Candidates, func(a, b Candidate) int { return cmp.Compare(b.HitGBPerSecond, a.HitGBPerSecond) })
	return picked, choice, nil
}

// spread returns n rows spread over the sample, all rows if there are no more. skip leaves out so many at the beginning of each part.
func spread(sample []byte, rowBytes, n, skip int) []byte {
	rows := len(sample) / rowBytes
	if n >= rows {
		return sample
	}
	part := make([]byte, 0, n*rowBytes)
	for i := range n {
		part = append(part, sample[(i*rows/n+skip)*rowBytes:][:rowBytes]...)
	}
	return part
}

// judge fills in what a codec, nil for none, is predicted to do.
func judge(to *Candidate, rate float64, c codec.Codec, sample []byte, rowBytes int, terms Terms) error {
	encoded, err := encodeAll(c, sample, rowBytes)
	if err != nil {
		return err
	}
	rows := float64(len(encoded))
	stored, slots := 0, 0
	for _, row := range encoded {
		stored += len(row)
		slots += slab.SlotBytes(len(row))
	}
	to.Ratio = float64(len(sample)) / float64(stored)
	if c != nil {
		to.MetadataBytes = c.MetadataBytes()
	}
	budget := terms.Budget - to.MetadataBytes
	if terms.Budget == 0 {
		budget = terms.Rows * int64(rowBytes) / 10
	}
	cached := min(float64(terms.Rows), float64(max(0, budget))/(float64(slots)/rows+entryBytes))
	if terms.HitRatio != nil {
		to.HitRatio = terms.HitRatio(cached)
	} else {
		to.HitRatio = math.Pow(cached/float64(terms.Rows), hitPower)
	}
	var seconds float64 // a byte of output
	if terms.Link > 0 {
		decode := gpuGather * rate
		to.DecodeGBPerSecond = decode / 1e9
		seconds = max(to.HitRatio/decode, (1-to.HitRatio)/to.Ratio/terms.Link)
	} else {
		perSecond, err := measure(c, encoded, rowBytes)
		if err != nil {
			return err
		}
		to.DecodeGBPerSecond = perSecond / 1e9
		seconds = 1 / perSecond
	}
	to.HitGBPerSecond = to.HitRatio / seconds / 1e9
	return nil
}

// encodeAll returns every row as it is stored.
func encodeAll(c codec.Codec, sample []byte, rowBytes int) (rows [][]byte, err error) {
	var dst []byte
	if c != nil {
		dst = make([]byte, c.EncodeBound())
	}
	all := make([]byte, 0, len(sample)) // nothing expands
	for ; len(sample) > 0; sample = sample[rowBytes:] {
		row := sample[:rowBytes]
		if c != nil {
			n, err := c.Encode(dst, row)
			switch {
			case err == nil:
				row = dst[:n]
			case !errors.Is(err, codec.ErrIncompressible):
				return nil, err
			}
		}
		all = append(all, row...)
		rows = append(rows, all[len(all)-len(row):])
	}
	return rows, nil
}

// measure returns the bytes of rows a second that one core decodes.
func measure(c codec.Codec, encoded [][]byte, rowBytes int) (best float64, err error) {
	row := make([]byte, rowBytes)
	for range 3 {
		rows, start := 0, time.Now()
		for rows == 0 || time.Since(start) < measuredTime {
			for _, stored := range encoded[:min(len(encoded), max(1, judgedBytes/8/rowBytes))] {
				if len(stored) == rowBytes {
					copy(row, stored)
				} else if _, err := c.Decode(row, stored); err != nil {
					return 0, err
				}
				rows++
			}
		}
		best = max(best, float64(rows)*float64(rowBytes)/max(time.Since(start).Seconds(), 1e-9))
	}
	return best, nil
}

// choose returns the best of the candidates: of those that are about as good as the best, the one that decodes fastest, then the one
// with the least metadata.
func choose(candidates []Candidate) int {
	most := 0.0
	for _, c := range candidates {
		if c.Skipped == "" {
			most = max(most, c.HitGBPerSecond)
		}
	}
	best := len(candidates) - 1
	for i, c := range candidates {
		if c.Skipped != "" || c.HitGBPerSecond < most*(1-judgedEqual) {
			continue
		}
		b := candidates[best]
		if b.HitGBPerSecond < most*(1-judgedEqual) || c.DecodeGBPerSecond > b.DecodeGBPerSecond ||
			c.DecodeGBPerSecond == b.DecodeGBPerSecond && c.Ratio > 1 && c.Ratio > b.Ratio {
			best = i
		}
	}
	return best
}

// reason says why the best candidate is it.
func reason(candidates []Candidate, best int, terms Terms) string {
	b := candidates[best]
	where := "decoded by this machine's processors, as measured"
	if terms.Link > 0 {
		where = fmt.Sprintf("decoded by a GPU behind a link of %.0f GB/s", terms.Link/1e9)
	}
	from := "by the training batches"
	if terms.HitRatio == nil {
		from = "by a power law"
	}
	s := fmt.Sprintf("%.2f GB of hits a second predicted (%.1f %% of lookups %s, ratio %.3f), %s", b.HitGBPerSecond, 100*b.HitRatio, from, b.Ratio, where)
	next := -1
	for i, c := range candidates {
		if i != best && c.Skipped == "" && (next < 0 || c.HitGBPerSecond > candidates[next].HitGBPerSecond) {
			next = i
		}
	}
	if next < 0 {
		return s
	}
	n := candidates[next]
	if n.HitGBPerSecond <= b.HitGBPerSecond {
		return s + fmt.Sprintf("; next is %s with %.2f", n.Codec, n.HitGBPerSecond)
	}
	why := "saves less"
	if n.DecodeGBPerSecond < b.DecodeGBPerSecond {
		why = "decodes slower"
	}
	return s + fmt.Sprintf("; %s, with %.2f, is judged equal and %s", n.Codec, n.HitGBPerSecond, why)
}
