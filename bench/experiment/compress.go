package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// CompressConfig says which codecs to try on which table.
type CompressConfig struct {
	// Features is a NumPy file; "" generates a table.
	Features string
	// DType is the type that the table's elements are taken for, of the same length; "" is that of the file.
	DType string
	Cast  string
	// RowElements takes so many elements, before they are cast, for a row: neighbouring rows of the table, or parts of one. 0: as they are.
	RowElements int
	// Generate is one of Generated, if there are no Features; "" is the first.
	Generate string
	// Codec is one codec or baseline, or "" for all of them that can serve the table's elements.
	Codec string
	Seed  uint64
	// Force goes on where the memory is estimated not to suffice.
	Force bool
	// Bounds asks for the entropy estimates of the table.
	Bounds bool
	// MinTime is how long each speed is measured for at least: small tables are gone through several times. Default 100 ms.
	MinTime time.Duration
}

// CodecResult is what one codec does to a table. Its JSON form is an element of what `cachebench compress --json` prints.
type CodecResult struct {
	Codec    string `json:"codec"`
	Rows     int    `json:"rows"`
	RowBytes int    `json:"row_bytes"`
	// RawRows did not shrink and are stored as they are.
	RawRows int `json:"raw_rows"`
	// MetadataBytes is the codec's memory on each device; it is not part of the ratio.
	MetadataBytes int64 `json:"metadata_bytes"`
	// Ratio is raw ÷ stored bytes.
	Ratio         float64 `json:"ratio"`
	SavingPercent float64 `json:"saving_percent"`
	// Speeds are GB of rows a second on one core.
	EncodeGBPerSecond float64 `json:"encode_gb_per_second"`
	DecodeGBPerSecond float64 `json:"decode_gb_per_second"`
	// RoundTrip is "ok", "lossy" of a lossy codec that keeps its bound in all rows, or where the first difference is.
	RoundTrip string `json:"round_trip"`
	// Buddy is what Buddy slots would make of it: cache.Table.Resident.
	Buddy BuddySlots `json:"buddy"`
	Held  Held       `json:"held"`
	// Bounds are those of the table, the same in each result, if CompressConfig.Bounds asked for them.
	Bounds *Bounds `json:"bounds,omitempty"`
	// PassesBounds says that SavingPercent is more than the highest of Bounds.
	PassesBounds bool `json:"passes_bounds,omitempty"`
}

// Held is how many times the rows that the same memory holds uncompressed, everything counted. Without rounding, indexes and hashmap it is CodecResult.Ratio.
type Held struct {
	// Slab is of a cache's budget: slots are multiples of 16 bytes, and the hashmap takes hashmap.EntryBytes a row.
	Slab float64 `json:"slab"`
	// Host is of host memory: a packed tier, whose rows lie at multiples of 16 bytes, beside uncompressed rows in place.
	Host float64 `json:"host"`
	// Both is of a packed tier, its index of 8 bytes a row on a GPU, and a slab there for a row in heldCached, beside uncompressed rows.
	Both float64 `json:"both"`
}

// heldCached is how many rows of the table there are for each cached one in Held.Both.
const heldCached = 6

// heldOf returns Held for rows of these stored lengths.
func heldOf(stored []int32, rowBytes int) Held {
	slots := 0.0
	for _, n := range stored {
		slots += float64(slab.SlotBytes(int(n)))
	}
	slot, raw := slots/float64(max(1, len(stored))), float64(slab.SlotBytes(rowBytes))
	const entry, index = hashmap.EntryBytes, 8
	inPlace := float64((rowBytes + 3) &^ 3)
	return Held{
		Slab: (raw + entry) / (slot + entry), Host: inPlace / slot,
		Both: (inPlace + (raw+entry)/heldCached) / (slot + index + (slot+entry)/heldCached),
	}
}

// RoundTripLossy is CodecResult.RoundTrip of a lossy codec that keeps its bound in all rows.
const RoundTripLossy = "lossy"

// Compress trains the codecs on a sample of the table, encodes and decodes all of its rows, and compares them.
func Compress(ctx context.Context, cfg CompressConfig, progress Progress) ([]CodecResult, error) {
	names := append(registry.Concrete(), baselineNames...)
	if cfg.Codec != "" {
		if err := registry.Check(cfg.Codec); err != nil && baselines[cfg.Codec] == nil {
			return nil, err
		}
		names = []string{cfg.Codec}
	}
	if err := errors.Join(dataset.CheckDType(cfg.DType), dataset.CheckCast(cfg.Cast)); err != nil {
		return nil, err
	}
	if err := (&Config{Features: cfg.Features}).oneTable(); err != nil {
		return nil, err
	}
	if !slices.Contains(Generated, cmp.Or(cfg.Generate, Generated[0])) {
		return nil, fmt.Errorf("--generate (%q) must be one of %s", cfg.Generate, strings.Join(Generated, ", "))
	}
	if cfg.Generate != "" && cfg.Features != "" {
		return nil, fmt.Errorf("--generate (%s) and --features (%s) contradict each other", cfg.Generate, cfg.Features)
	}
	if cfg.RowElements < 0 {
		return nil, fmt.Errorf("--row-elements (%d) must be at least 1", cfg.RowElements)
	}
	if err := cfg.checkMemory(); err != nil {
		return nil, err
	}
	var table *dataset.Table
	var err error
	if cfg.Features != "" {
		progress.Stage("reading the features", 0)
		table, err = dataset.Load(cfg.Features)
	} else {
		progress.Stage("generating the features", 0)
		table, err = cfg.generate()
	}
	if err != nil {
		return nil, err
	}
	if err := table.InMemory(); err != nil {
		return nil, err
	}
	if table, err = table.As(cfg.DType); err != nil {
		return nil, err
	}
	if cfg.RowElements > 0 {
		if table, err = table.WithRows(cfg.RowElements * table.DType.Size()); err != nil {
			return nil, fmt.Errorf("--row-elements (%d): %w", cfg.RowElements, err)
		}
	}
	if table, err = table.Cast(cfg.Cast); err != nil {
		return nil, err
	}
	var bounds *Bounds
	if cfg.Bounds {
		progress.Stage("estimating savings by entropy", 0)
		b := boundsOf(table)
		bounds = &b
	}
	var results []CodecResult
	progress.Stage("encoding and decoding", len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := trainNamed(name, table, cfg.Seed)
		if errors.Is(err, codec.ErrDType) && cfg.Codec == "" {
			progress.Step()
			continue
		}
		if err != nil {
			return nil, err
		}
		res, err := tryCodec(c, table, cmp.Or(cfg.MinTime, 100*time.Millisecond))
		if err != nil {
			return nil, fmt.Errorf("codec %s: %w", name, err)
		}
		res.Bounds = bounds
		res.PassesBounds = bounds != nil && res.SavingPercent > bounds.highest()
		results = append(results, res)
		progress.Step()
	}
	return results, nil
}

// Generated are the tables that CompressConfig.Generate names: float32 of N(0,1) × exp(z) of the column, as for a run; float32 of N(0,1), 256 a row; the float8 rows of n-gram
// tables; and those of workload.StandIns.
var Generated = append([]string{"features", "normal", "ngram"}, standIns()...)

func standIns() (names []string) {
	for _, s := range workload.StandIns {
		names = append(names, s.Name)
	}
	return names
}

// generatedRows is how many rows of 256 elements are generated.
const generatedRows = 200_000

func (c *CompressConfig) generate() (*dataset.Table, error) {
	switch c.Generate {
	case "normal":
		return dataset.Normal(generatedRows, workload.NgramElements, c.Seed)
	case "ngram":
		data, err := workload.Float8Rows(generatedRows, workload.NgramElements, c.Seed)
		if err != nil {
			return nil, err
		}
		return &dataset.Table{Name: "generated", DType: workload.Float8Row(workload.NgramElements), Rows: generatedRows, RowBytes: workload.NgramRowBytes, Data: data}, nil
	case "features", "":
		return dataset.Generate(defaultVertices, defaultColumns, c.Seed)
	}
	return dataset.StandIn(c.Generate, c.Seed)
}

// trainNamed makes a codec or a baseline.
func trainNamed(name string, table *dataset.Table, seed uint64) (codec.Codec, error) {
	if of := baselines[name]; of != nil {
		return of(table.RowBytes)
	}
	c, err := trainAs(name, table, seed)
	if c == nil && err == nil {
		c = raw{table.RowBytes}
	}
	return c, err
}

// Bound returns the largest absolute error of an element that the named codec makes, 0 where rows come back as they were.
func Bound(name string) float64 {
	f, _ := registry.Family(name) // its zero value is without loss
	return f.Bound
}

// compressPart is how many bytes of rows are encoded, then decoded and compared, at a time.
const compressPart = 4 << 20

// tryCodec encodes and decodes the table, again and again until minTime has passed for both, and compares what it decodes the first time.
func tryCodec(c codec.Codec, t *dataset.Table, minTime time.Duration) (CodecResult, error) {
	res := CodecResult{Codec: c.Name(), Rows: t.Rows, RowBytes: t.RowBytes, MetadataBytes: c.MetadataBytes(), RoundTrip: "ok"}
	bound := Bound(c.Name())
	if bound > 0 {
		res.RoundTrip = RoundTripLossy
	}
	part := min(max(1, compressPart/t.RowBytes), t.Rows) // rows
	stored, decoded := make([]byte, part*t.RowBytes+c.EncodeBound()), make([]byte, part*t.RowBytes)
	lengths := make([]int, part) // 0: raw
	var encoding, decoding time.Duration
	var bytes, storedBytes int64
	all := make([]int32, 0, t.Rows) // stored lengths
	// A pass encodes and decodes. A slow encoder whose rows stay raw would take a thousand passes until the copies were measured for long.
	for bytes == 0 || min(encoding, decoding) < minTime && encoding+decoding < 10*minTime {
		first := bytes == 0
		for from := 0; from < t.Rows; from += part {
			rows := t.Data[from*t.RowBytes : min(from+part, t.Rows)*t.RowBytes]
			copy(stored, rows) // reading what lies in a file is not timed
			start := time.Now()
			n, raw, err := encodeRows(c, stored, lengths, rows)
			if err != nil {
				return res, err
			}
			encoding += time.Since(start)
			start = time.Now()
			row, err := decodeRows(c, decoded[:len(rows)], stored, lengths)
			decoding += time.Since(start)
			if err != nil {
				res.RoundTrip = fmt.Sprintf("row %d: %v", from+row, err)
				return res, nil
			}
			if bytes += int64(len(rows)); !first {
				continue
			}
			storedBytes += int64(n)
			res.RawRows += raw
			for _, n := range lengths[:len(rows)/t.RowBytes] {
				if n == 0 || n > t.RowBytes { // a baseline's may be longer than the row, which would then stay raw
					n = t.RowBytes
				}
				all = append(all, int32(n))
			}
			if fault := firstDifference(t, from, decoded[:len(rows)], bound); fault != "" && (res.RoundTrip == "ok" || res.RoundTrip == RoundTripLossy) {
				res.RoundTrip = fault
			}
		}
	}
	res.EncodeGBPerSecond, res.DecodeGBPerSecond = float64(bytes)/1e9/encoding.Seconds(), float64(bytes)/1e9/decoding.Seconds()
	res.Buddy, res.Held = buddySlots(all, t.RowBytes), heldOf(all, t.RowBytes)
	res.Ratio = ratio(int64(len(t.Data)), storedBytes)
	res.SavingPercent = 100 * (1 - float64(storedBytes)/float64(len(t.Data)))
	return res, nil
}

// encodeRows stores rows back to back, with their lengths, 0 for the raw ones, and returns the bytes it wrote and the number of raw rows.
func encodeRows(c codec.Codec, stored []byte, lengths []int, rows []byte) (n, raw int, err error) {
	for i := range len(rows) / c.RowBytes() {
		row := rows[i*c.RowBytes():][:c.RowBytes()]
		lengths[i], err = c.Encode(stored[n:], row)
		switch {
		case err == nil:
			n += lengths[i]
		case errors.Is(err, codec.ErrIncompressible):
			lengths[i] = 0
			n += copy(stored[n:], row)
			raw++
		default:
			return n, raw, err
		}
	}
	return n, raw, nil
}

// decodeRows restores rows that encodeRows has stored. With an error, row is where it ended.
func decodeRows(c codec.Codec, rows, stored []byte, lengths []int) (row int, err error) {
	for ; row < len(rows)/c.RowBytes(); row++ {
		dst, n := rows[row*c.RowBytes():][:c.RowBytes()], lengths[row]
		if n == 0 {
			n = copy(dst, stored)
		} else if m, err := c.Decode(dst, stored[:n]); err != nil || m != n {
			return row, fmt.Errorf("decoded %d of %d bytes: %w", m, n, err)
		}
		stored = stored[n:]
	}
	return row, nil
}

// firstDifference says where rows, of which the first has this number, differ from those of the table by more than bound; "" for nowhere.
func firstDifference(t *dataset.Table, first int, got []byte, bound float64) string {
	for i := int64(first); len(got) > 0; i, got = i+1, got[t.RowBytes:] {
		if t.Within(i, got[:t.RowBytes], bound) {
			continue
		}
		if bound > 0 {
			return fmt.Sprintf("row %d: an element differs by more than %g", i, bound)
		}
		for j, want := range t.Row(i) {
			if got[j] != want {
				return fmt.Sprintf("row %d byte %d: %#02x, source %#02x", i, j, got[j], want)
			}
		}
	}
	return ""
}

// raw stores rows as they are.
type raw struct{ rowBytes int }

func (r raw) Name() string                                { return registry.None }
func (r raw) RowBytes() int                               { return r.rowBytes }
func (r raw) EncodeBound() int                            { return 0 }
func (r raw) MetadataBytes() int64                        { return 0 }
func (r raw) Encode(dst, row []byte) (int, error)         { return 0, codec.ErrIncompressible }
func (r raw) Decode(row, src []byte) (int, error)         { return copy(row, src), nil }
func (r raw) Stored(src []byte) (int, error)              { return r.rowBytes, nil }
func (r raw) MarshalBinary() (metadata []byte, err error) { return nil, nil }

// trainAs makes the named codec as a cache of the table with this seed does; nil for rows as they are.
func trainAs(name string, t *dataset.Table, seed uint64) (c codec.Codec, err error) {
	if name == registry.None {
		return nil, nil
	}
	sample := t.Sample(seed)
	if name == registry.Auto {
		c, _, err = registry.Pick(sample, t.RowBytes, t.DType, registry.Terms{Rows: int64(t.Rows)})
		return c, err
	}
	return registry.Train(name, sample, t.RowBytes, t.DType)
}
