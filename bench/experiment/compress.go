package experiment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
)

// CompressConfig says which codecs to try on which table.
type CompressConfig struct {
	// Features is a NumPy file; "" generates the default table of a run.
	Features string
	Cast     string
	// Codec is one codec or baseline, or "" for all of them that can serve the table's elements.
	Codec string
	Seed  uint64
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
	// RoundTrip is "ok", or where the first difference is. Rows of a lossy codec are "lossy".
	RoundTrip string `json:"round_trip"`
}

// RoundTripLossy is CodecResult.RoundTrip of a lossy codec whose rows all decode.
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
	if err := dataset.CheckCast(cfg.Cast); err != nil {
		return nil, err
	}
	var table *dataset.Table
	var err error
	if cfg.Features != "" {
		progress.Stage("reading the features", 0)
		table, err = dataset.Load(cfg.Features)
	} else {
		progress.Stage("generating the features", 0)
		table, err = dataset.Generate(defaultVertices, defaultColumns, cfg.Seed)
	}
	if err != nil {
		return nil, err
	}
	if table, err = table.Cast(cfg.Cast); err != nil {
		return nil, err
	}
	sample := codec.Sample(table.Data, int64(table.Rows), table.RowBytes, int64(table.RowBytes), cfg.Seed)
	var results []CodecResult
	progress.Stage("encoding and decoding", len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := trainNamed(name, sample, table)
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
		results = append(results, res)
		progress.Step()
	}
	return results, nil
}

// trainNamed makes a codec or a baseline.
func trainNamed(name string, sample []byte, table *dataset.Table) (codec.Codec, error) {
	if of := baselines[name]; of != nil {
		return of(table.RowBytes)
	}
	c, err := registry.Train(name, sample, table.RowBytes, table.DType)
	if c == nil && err == nil {
		c = raw{table.RowBytes}
	}
	return c, err
}

// Lossy says whether rows of the named codec may come back changed.
func Lossy(name string) bool {
	f, err := registry.Family(name)
	return err == nil && f.Lossy
}

func tryCodec(c codec.Codec, t *dataset.Table, minTime time.Duration) (CodecResult, error) {
	res := CodecResult{Codec: c.Name(), Rows: t.Rows, RowBytes: t.RowBytes, MetadataBytes: c.MetadataBytes(), RoundTrip: "ok"}
	stored := make([]byte, 0, len(t.Data))
	lengths := make([]int, t.Rows) // 0: raw
	dst := make([]byte, c.EncodeBound())
	rate, err := timeRows(t, minTime, func(i int64) error {
		if i == 0 {
			stored, res.RawRows = stored[:0], 0
		}
		n, err := c.Encode(dst, t.Row(i))
		switch {
		case err == nil:
			stored = append(stored, dst[:n]...)
			lengths[i] = n
		case errors.Is(err, codec.ErrIncompressible):
			stored = append(stored, t.Row(i)...)
			lengths[i] = 0
			res.RawRows++
		default:
			return err
		}
		return nil
	})
	if err != nil {
		return res, err
	}
	res.EncodeGBPerSecond = rate
	res.Ratio = ratio(int64(len(t.Data)), int64(len(stored)))
	res.SavingPercent = 100 * (1 - float64(len(stored))/float64(len(t.Data)))

	row := make([]byte, t.RowBytes)
	var at []byte
	step := func(i int64) error {
		if i == 0 {
			at = stored
		}
		n := lengths[i]
		if n == 0 {
			n = copy(row, at[:t.RowBytes])
		} else if m, err := c.Decode(row, at[:n]); err != nil || m != n {
			return fmt.Errorf("row %d: decoded %d of %d bytes: %w", i, m, n, err)
		}
		at = at[n:]
		return nil
	}
	if res.DecodeGBPerSecond, err = timeRows(t, minTime, step); err != nil {
		res.RoundTrip = err.Error()
		return res, nil
	}
	if Lossy(c.Name()) {
		res.RoundTrip = RoundTripLossy
		return res, nil
	}
	for i := range int64(t.Rows) {
		if err := step(i); err != nil {
			res.RoundTrip = err.Error()
		} else if want := t.Row(i); !bytes.Equal(row, want) {
			res.RoundTrip = firstDifference(i, row, want)
		} else {
			continue
		}
		break
	}
	return res, nil
}

// timeRows calls step for every row in turn, all over again until minTime has passed, and returns GB of rows a second.
func timeRows(t *dataset.Table, minTime time.Duration, step func(i int64) error) (float64, error) {
	start, passes := time.Now(), 0
	for passes == 0 || time.Since(start) < minTime {
		for i := range int64(t.Rows) {
			if err := step(i); err != nil {
				return 0, err
			}
		}
		passes++
	}
	return float64(passes) * float64(len(t.Data)) / 1e9 / time.Since(start).Seconds(), nil
}

func firstDifference(row int64, got, want []byte) string {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("row %d byte %d: %#02x, source %#02x", row, i, got[i], want[i])
		}
	}
	return "ok"
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
