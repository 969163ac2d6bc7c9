package registry

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// Terms say what auto-selection is to predict for.
type Terms struct {
	// Rows is the length of the table, 0 for the sample's.
	Rows int64
	// Budget is the bytes that the table's rows can have, all devices together; 0 for a tenth of the table. A codec whose metadata, which each
	// device has besides, are as long is passed over. Devices is how many devices it is of, 0 for one.
	Budget  int64
	Devices int
	// Link is the bytes a second at which a GPU that is not measured reads misses from the host tier; 0 for DefaultLink. NoLink: there is no
	// GPU; hits and misses are decoded by this machine's processors, whose speed is measured on the sample.
	Link float64
	// Batch is the rows of a batch, 0 for DefaultBatch. It counts as at least 4,096: of shorter batches launches take most of the time,
	// whatever the codec.
	Batch float64
	// Drawn are rows that stand for all of the table, with how often they are looked up. None: a power law is taken. Read returns their
	// bytes, back to back. It must be set if there are any.
	Drawn []Drawn
	Read  func(rows []int64) ([]byte, error)
	// Demand, if not nil, returns Batch and Drawn when the codecs are trained, so that both can be found out meanwhile.
	Demand func() (batch float64, drawn []Drawn)
	// Resident, if not 0, says that all rows are to be in slots within Budget, of one length or of one for each range of rows, and at most this share of them
	// longer: slab/buddy.
	// Hits are then rows that are not longer, and misses read what others have beyond their slots.
	Resident float64
	// Saved returns what a hit saves of a row of so many stored bytes: admission ranks rows by how often they are looked up, times that, per slot
	// byte. Nil: the stored bytes.
	Saved func(stored int) float64
	// Train, if not nil, trains a family in some faster way than its own; ok is false if it knows none. It is called for one family
	// after the other.
	Train func(f codec.Family) (c codec.Codec, ok bool, err error)
	// Measure, if not nil, measures the codecs, the most promising first, on the device, for batches of so many rows. It returns costs of
	// None and of as many others as there is time for, or of none at all, and Measured.By then says why. It is not called for small tables, and not if Link is NoLink.
	Measure func(codecs []Trained, batch float64) (Measured, error)
}

const (
	// DefaultLink is the link that codecs are chosen for where nothing else is known: PCIe 5 x16, as measured on an H200.
	DefaultLink = 55e9
	// NoLink, as a link, stands for none.
	NoLink = -1
	// DefaultBatch is the rows of a batch where nothing else is known.
	DefaultBatch = 1 << 16
	leastBatch   = 1 << 12
)

const (
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
	// Of codecs that are predicted to be as fast but for this share, the one that decodes faster is chosen.
	judgedEqual = 0.005
	// A pick of an earlier measurement stands unless another codec takes less than this share of its time.
	standing = 0.97
	// Codecs are not measured on a device where they are predicted to take more than this many times the least.
	hopeless = 1.5
	// measuredTime is how long decoding is measured, three times, the best being taken.
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
	// HitRatio is the predicted one.
	HitRatio float64 `json:"hit_ratio"`
	// HitNanoseconds and MissNanoseconds are what a row of the batch takes. Measured says that they were measured on the device, or, without
	// one, on a core; else they follow from a GPU's figures and the link.
	HitNanoseconds  float64 `json:"hit_nanoseconds"`
	MissNanoseconds float64 `json:"miss_nanoseconds"`
	Measured        bool    `json:"measured,omitempty"`
	// BatchMicroseconds is what the choice is by: the predicted time of a batch.
	BatchMicroseconds float64 `json:"batch_microseconds"`
	// Unfit says that the table does not fit the budget as a resident one by this codec. HitRatio, MissNanoseconds and BatchMicroseconds are 0 then.
	Unfit bool `json:"unfit,omitempty"`

	gpu   codec.GPURate // the family's for the table's rows; of None, 1 for all rows
	costs Costs
	// What misses of a batch read, on average, in stored bytes.
	missBytes float64
}

// Choice is what auto-selection did. Its JSON form is part of cachebench's output.
type Choice struct {
	// Codec is the name of what was chosen, None for rows as they are.
	Codec string `json:"codec"`
	// Reason says why, in a sentence, and Basis what the predictions are made from.
	Reason string `json:"reason"`
	Basis  string `json:"basis"`
	// Machine is what the choice is for: this machine's processors, its GPU, or one that others have measured.
	Machine string `json:"machine"`
	// BatchRows is the rows of the batches that the choice is for.
	BatchRows float64 `json:"batch_rows"`
	// Costs are what batches are predicted by with the codec that was chosen.
	Costs Costs `json:"costs"`
	// MeasuredSeconds is how long the device was measured, 0 if it was not. Kept says that an earlier cache did that.
	MeasuredSeconds float64 `json:"measured_seconds,omitempty"`
	Kept            bool    `json:"kept,omitempty"`
	// Candidates are all that were considered, the least predicted time first: the chosen one is first or nearly as good.
	Candidates []Candidate `json:"candidates"`
}

// Pick trains every codec that loses nothing on the sample and returns the one whose batches are predicted to take the least time, nil for
// rows as they are. Codecs that cannot serve dtype, and those that no GPU can decode where one is to, are passed over. With the same
// sample and terms it picks the same, unless it measures: if terms.Measure is set, or terms.Link is NoLink.
//
// The model: of a batch's lookups a share hits, as many as the rows get that fit in the budget when those that training looked up most
// often are cached first. A batch takes the longer of decoding its hits and reading its misses, which GPUs do side by side, and what
// launches and lookups take: Costs.Seconds. Costs are those that terms.Measure returns; or else a GPU decodes hits at its codec's
// declared share of what copying takes, and the stored bytes of misses cross the link. Without a GPU hits and misses are decoded
// alike, one after the other, at the speed measured.
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
	terms.Link = cmp.Or(terms.Link, DefaultLink)
	terms.Devices = cmp.Or(terms.Devices, 1)
	judged := spread(sample, rowBytes, max(1, min(judgedRows, judgedBytes/rowBytes)), 0)
	small := terms.Rows*int64(rowBytes) <= smallTable
	if n := max(smallRows, smallSample/rowBytes); small && 2*n <= len(sample)/rowBytes {
		sample, judged = spread(sample, rowBytes, n, 0), spread(sample, rowBytes, n, 1)
		terms.Train = nil // it would take longer, and train on all of the sample
	}
	if small {
		terms.Measure = nil
	}
	all, err := train(sample, rowBytes, of, terms)
	if err != nil {
		return nil, Choice{}, err
	}
	if terms.Demand != nil {
		terms.Batch, terms.Drawn = terms.Demand()
	}
	terms.Batch = max(leastBatch, cmp.Or(terms.Batch, DefaultBatch))
	var drawn []byte
	if len(terms.Drawn) > 0 {
		numbers := make([]int64, len(terms.Drawn))
		for i, d := range terms.Drawn {
			numbers[i] = d.Row
		}
		if drawn, err = terms.Read(numbers); err != nil {
			return nil, Choice{}, err
		}
	}
	errs := make([]error, len(all))
	var judging sync.WaitGroup
	for i := range all {
		if all[i].Skipped == "" {
			judging.Go(func() { errs[i] = all[i].judge(judged, drawn, rowBytes, &terms) })
		}
	}
	judging.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, Choice{}, fmt.Errorf("codec: %s: %w", all[i].Codec, err)
		}
	}
	measured, err := cost(all, rowBytes, of, small, &terms)
	if err != nil {
		return nil, Choice{}, err
	}
	candidates := make([]Candidate, len(all))
	for i, c := range all {
		candidates[i] = c.Candidate
	}
	best := choose(candidates, measured.Pick)
	choice := Choice{
		Codec: candidates[best].Codec, Reason: reason(candidates, best, rowBytes, measured.Pick, terms), Basis: basis(measured, terms), Machine: machine(measured, terms), BatchRows: terms.Batch,
		Costs: all[best].costs, MeasuredSeconds: measured.Seconds, Kept: measured.Kept, Candidates: candidates,
	}
	slices.SortStableFunc(choice.Candidates, func(a, b Candidate) int {
		if (a.Skipped == "") != (b.Skipped == "") {
			return cmp.Compare(len(a.Skipped), len(b.Skipped))
		}
		return cmp.Compare(a.BatchMicroseconds, b.BatchMicroseconds)
	})
	for i := range choice.Candidates {
		if c := &choice.Candidates[i]; c.Unfit {
			c.MissNanoseconds, c.BatchMicroseconds = 0, 0
		}
	}
	return all[best].codec, choice, nil
}

// A contender is a candidate while it is judged.
type contender struct {
	Candidate
	codec   codec.Codec // nil for None
	encoded [][]byte    // the judged rows as stored
}

// rate is what decoding the candidate's rows writes a second as a share of what copying them does.
func (c *Candidate) rate() float64 { return c.gpu.At(c.Ratio) }

// train returns all candidates, None last, those that can serve the table with the codec trained on the sample.
func train(sample []byte, rowBytes int, of dtype.Type, terms Terms) ([]contender, error) {
	families := concrete()
	all, errs := make([]contender, len(families)), make([]error, len(families))
	var training sync.WaitGroup
	for i, f := range families {
		all[i].Codec = f.Name
		if terms.Link > 0 && f.GPURate.Rate == 0 {
			all[i].Skipped = "no GPU decodes it"
			continue
		}
		if terms.Train != nil {
			c, ok, err := terms.Train(f)
			if ok || err != nil {
				all[i].codec, errs[i] = c, err
				continue
			}
		}
		training.Go(func() { all[i].codec, errs[i] = f.Train(sample, rowBytes, f.ElementsOf(of)) })
	}
	training.Wait()
	for i, f := range families {
		switch {
		case errors.Is(errs[i], codec.ErrDType):
			all[i].Skipped = errs[i].Error()
		case errs[i] != nil:
			return nil, fmt.Errorf("codec: %s: %w", f.Name, errs[i])
		}
		all[i].gpu = f.GPURate.For(of, rowBytes, all[i].codec)
	}
	return append(all, contender{Candidate: Candidate{Codec: None, gpu: codec.GPURate{Rate: 1}}}), nil
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

// judge fills in what follows from the rows' stored lengths. drawn are the rows of terms.Drawn.
func (c *contender) judge(sample, drawn []byte, rowBytes int, terms *Terms) (err error) {
	if c.encoded, err = encodeAll(c.codec, sample, rowBytes); err != nil {
		return err
	}
	stored, slots := 0, 0
	for _, row := range c.encoded {
		stored += len(row)
		slots += slab.SlotBytes(len(row))
	}
	c.Ratio = float64(len(sample)) / float64(stored)
	if c.codec != nil && c.Ratio <= 1 { // rows as they are, by another name
		c.Candidate = Candidate{Codec: c.Codec, Skipped: "no row shrinks"}
		return nil
	}
	if c.codec != nil {
		c.MetadataBytes = c.codec.MetadataBytes()
	}
	rows := float64(terms.Rows)
	budget := float64(terms.Budget)
	if terms.Budget == 0 {
		budget = rows * float64(rowBytes) / 10
	} else if c.codec != nil && c.MetadataBytes >= max(1, terms.Budget/int64(terms.Devices)) {
		c.Candidate = Candidate{Codec: c.Codec, Skipped: fmt.Sprintf("its metadata (%d bytes) are as long as the budget", c.MetadataBytes)}
		return nil
	}
	if terms.Resident > 0 {
		c.reside(rowBytes, terms.Resident, budget/max(1, rows)-buddy.WordBytes)
		return nil
	}
	entry := entryBytes * float64(terms.Devices)
	if drawn == nil {
		c.HitRatio = powerLaw(max(0, budget)/(float64(slots)/float64(len(c.encoded))+entry), rows)
		c.missBytes = float64(rowBytes) / c.Ratio
		return nil
	}
	// Each device has a bit for each row that is rejected, and one for each that is compressed.
	bits := (rows + 7) / 8
	if c.codec != nil {
		bits *= 2
	}
	budget -= float64(terms.Devices) * (bits + slab.TailSlack)
	encoded, err := encodeAll(c.codec, drawn, rowBytes)
	if err != nil {
		return err
	}
	saved := terms.Saved
	if saved == nil {
		saved = func(stored int) float64 { return float64(stored) }
	}
	c.HitRatio, c.missBytes = fill(terms.Drawn, encoded, budget, entry, saved)
	return nil
}

// reside fills in what follows for a resident table, of which each row has so many bytes of the budget: with one target, or one for each range of rows, as
// cache.New chooses them. The judged rows are in the order of the table's.
func (c *contender) reside(rowBytes int, share, most float64) {
	stored := make([]int32, len(c.encoded))
	for i, row := range c.encoded {
		stored[i] = int32(len(row))
	}
	rows := float64(len(stored))
	// The rows judged are few: by a codec whose share is near the limit the table may not fit.
	share = max(0, share-2*math.Sqrt(share*(1-share)/max(1, rows)))
	// What is read of overflow places counts, and not the time of slots, which is nearly the same by all codecs.
	choice, fits := buddy.ChooseParts(buddy.Layout{RowBytes: rowBytes, Rows: int64(len(stored)), Devices: 1}, stored, buddy.Limits{Bytes: int64(max(0, most*rows)), Overflow: share},
		buddy.Times{Overflow: func(bytes, _ int) float64 { return float64(bytes) }})
	if !fits { // If no codec does, the one that needs the shortest slots is to be chosen, as the error names what it needs
		c.Unfit = true
		c.HitRatio, c.missBytes = 0, misfit*float64(choice.SlotsBytes())/max(1, rows)
		return
	}
	c.HitRatio, c.missBytes = 1-choice.Overflow, 0
	if choice.Overflow > 0 {
		c.missBytes = choice.Seconds / choice.Overflow
	}
}

// misfit is how many bytes each byte of a slot counts for a codec by which a table does not fit: more than any that fits can read.
const misfit = 1 << 20

// fill caches drawn rows in the order in which admission ranks them, each of which takes its slot and entry bytes of the budget, and
// returns the share of the lookups that hit, and the mean stored bytes of a miss. Where rows miss by chance only, it is of all lookups.
func fill(drawn []Drawn, encoded [][]byte, budget, entry float64, saved func(stored int) float64) (hitRatio, missBytes float64) {
	// What policy freq ranks by. Rows that training did not look up come last.
	score := func(i int) float64 {
		stored := len(encoded[i])
		return drawn[i].Count * saved(stored) / (float64(slab.SlotBytes(stored)) + entry)
	}
	order := make([]int, len(drawn))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(score(b), score(a)) })
	all, missed, bytes := 0.0, 0.0, 0.0
	for _, i := range order {
		d := drawn[i]
		takes := d.Rows * (float64(slab.SlotBytes(len(encoded[i]))) + entry)
		part := 1.0 // of these rows fits
		if takes > budget {
			part = max(0, budget) / takes
		}
		budget -= takes
		all += d.Lookups
		missed += d.Lookups * (1 - part)
		bytes += d.Lookups * (1 - part) * float64(len(encoded[i]))
	}
	if all == 0 {
		return 0, float64(len(encoded[0]))
	}
	if missed == 0 {
		for _, row := range encoded {
			missBytes += float64(len(row)) / float64(len(encoded))
		}
		return 1, missBytes
	}
	return 1 - missed/all, bytes / missed
}

// cost fills in the costs and the predicted time of all that are not skipped.
func cost(all []contender, rowBytes int, of dtype.Type, small bool, terms *Terms) (m Measured, err error) {
	predict := func(c *contender, costs Costs, measured bool) {
		c.costs, c.Measured = costs, measured
		c.HitNanoseconds, c.MissNanoseconds = costs.Hit*1e9, costs.MissSeconds(c.missBytes)*1e9
		c.BatchMicroseconds = costs.Seconds(terms.Batch, c.HitRatio, c.missBytes) * 1e6
	}
	if terms.Link == NoLink {
		for i := range all {
			c := &all[i]
			if c.Skipped != "" {
				continue
			}
			row, err := processor(c, rowBytes, of, small)
			if err != nil {
				return m, fmt.Errorf("codec: %s: %w", c.Codec, err)
			}
			predict(c, Costs{Hit: row, Miss: row, Serial: true}, true)
		}
		return m, nil
	}
	least := math.Inf(1)
	for i := range all {
		if c := &all[i]; c.Skipped == "" {
			predict(c, gpuCosts(rowBytes, c.rate(), terms.Link), false)
			least = min(least, c.BatchMicroseconds)
		}
	}
	if terms.Measure == nil {
		return m, nil
	}
	var codecs []Trained
	predicted := map[string]float64{}
	for i := range all {
		c := &all[i]
		predicted[c.Codec] = c.BatchMicroseconds
		if c.Skipped == "" && (c.codec == nil || c.BatchMicroseconds <= hopeless*least) {
			codecs = append(codecs, Trained{Name: c.Codec, Codec: c.codec, Rows: c.encoded, Ratio: c.Ratio})
		}
	}
	slices.SortStableFunc(codecs, func(a, b Trained) int { return cmp.Compare(predicted[a.Name], predicted[b.Name]) })
	if m, err = terms.Measure(codecs, terms.Batch); err != nil {
		return m, err
	}
	plain, ok := m.Costs[None]
	if !ok {
		return m, nil
	}
	for i := range all {
		c := &all[i]
		if c.Skipped != "" {
			continue
		}
		costs, measured := m.Costs[c.Codec]
		if !measured { // as rows as they are, but for what the codec is declared to do; it is not picked
			costs = plain
			costs.Hit /= c.rate()
		}
		predict(c, costs, measured)
	}
	return m, nil
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

// processors are the seconds a row that processor has measured: small tables of one kind share them.
var processors struct {
	sync.Mutex
	seconds map[kind]float64
}

// kind is what decoding takes as long for: the ratio is in steps of a twentieth.
type kind struct {
	codec    string
	rowBytes int
	of       dtype.Type
	ratio    int
}

const maxKinds = 4096 // of which processors has the seconds

// processor returns the seconds in which one core decodes a row. Of a small table it is what another one of the kind took, if there was any.
func processor(c *contender, rowBytes int, of dtype.Type, small bool) (float64, error) {
	k := kind{c.Codec, rowBytes, of, int(math.Round(20 * c.Ratio))}
	if small {
		processors.Lock()
		seconds, ok := processors.seconds[k]
		processors.Unlock()
		if ok {
			return seconds, nil
		}
	}
	perSecond, err := measure(c.codec, c.encoded, rowBytes)
	if err != nil {
		return 0, err
	}
	seconds := float64(rowBytes) / perSecond
	processors.Lock()
	defer processors.Unlock()
	if processors.seconds == nil || len(processors.seconds) >= maxKinds {
		processors.seconds = map[kind]float64{}
	}
	processors.seconds[k] = seconds
	return seconds, nil
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

// passedOver returns whether a candidate cannot be picked: it was skipped, or others were measured and it was not.
func passedOver(candidates []Candidate) func(Candidate) bool {
	measured := slices.ContainsFunc(candidates, func(c Candidate) bool { return c.Measured })
	return func(c Candidate) bool { return c.Skipped != "" || measured && !c.Measured }
}

// choose returns the best of the candidates: the one that was picked before if it is nearly as fast as the fastest; else, of those
// that are about as fast, the one that decodes fastest, then the one that saves most.
func choose(candidates []Candidate, before string) int {
	out := passedOver(candidates)
	least := math.Inf(1)
	for _, c := range candidates {
		if !out(c) {
			least = min(least, c.BatchMicroseconds)
		}
	}
	best := -1
	for i, c := range candidates {
		switch {
		case out(c):
		case c.Codec == before && least >= standing*c.BatchMicroseconds:
			return i
		case c.BatchMicroseconds*(1-judgedEqual) > least:
		case best < 0 || c.HitNanoseconds < candidates[best].HitNanoseconds,
			c.HitNanoseconds == candidates[best].HitNanoseconds && c.Ratio > candidates[best].Ratio:
			best = i
		}
	}
	return best
}

// reason says in words why the best candidate is it.
func reason(candidates []Candidate, best, rowBytes int, before string, terms Terms) string {
	b := candidates[best]
	s := "no codec is predicted to make batches faster than rows as they are"
	if b.Codec != None {
		s = fmt.Sprintf("its rows take %.1f %% fewer bytes, so more of them fit and misses move less; ", 100*(1-1/b.Ratio))
		speed := float64(rowBytes) / b.HitNanoseconds // GB/s
		if terms.Link > 0 {
			s += fmt.Sprintf("a GPU decodes them at %.0f GB/s", speed)
		} else {
			s += fmt.Sprintf("a core here decodes %.2f GB/s", speed)
		}
	}
	next, out := -1, passedOver(candidates)
	for i, c := range candidates {
		if i != best && !out(c) && !c.Unfit && (next < 0 || c.BatchMicroseconds < candidates[next].BatchMicroseconds) {
			next = i
		}
	}
	if next < 0 {
		return s
	}
	n := candidates[next]
	more := 100 * (n.BatchMicroseconds/b.BatchMicroseconds - 1)
	switch {
	case more >= 0:
		return s + fmt.Sprintf("; batches take %.1f %% longer with %s, the next", more, n.Codec)
	case b.Codec == before:
		if s += "; it was picked before"; b.Codec == None {
			s = "rows as they are were picked before"
		}
		return s + fmt.Sprintf(", and %s takes only %.1f %% less", n.Codec, -more)
	}
	why := "saves less"
	if n.HitNanoseconds > b.HitNanoseconds {
		why = "decodes slower"
	}
	return s + fmt.Sprintf("; %s, predicted to take %.1f %% less, counts as equal and %s", n.Codec, -more, why)
}

// Machines that codecs are chosen for, in Choice.Machine.
const (
	ForProcessors = "this machine's processors"
	ForGPU        = "this machine's GPU"
)

// machine says what the predictions are for.
func machine(m Measured, terms Terms) string {
	switch {
	case terms.Link == NoLink:
		return ForProcessors
	case len(m.Costs) > 0:
		return ForGPU
	}
	return fmt.Sprintf("a GPU like an H200 that reads misses at %.0f GB/s", terms.Link/1e9)
}

// basis says what the predictions are made from.
func basis(m Measured, terms Terms) string {
	s := "hits of lookups by the training batches"
	if len(terms.Drawn) == 0 {
		s = "hits of lookups by a power law"
	}
	s += fmt.Sprintf(", batches of %.0f rows, ", terms.Batch)
	switch {
	case terms.Link == NoLink:
		return s + "decoding as measured on one of this machine's processors"
	case len(m.Costs) > 0:
		return s + m.By
	}
	return s + strings.TrimSpace(fmt.Sprintf("misses over a link of %.0f GB/s, decoding as measured on an H200 %s", terms.Link/1e9, m.By))
}
