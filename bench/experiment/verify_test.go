package experiment

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/dtype"
)

func tableOf(rows, rowBytes int) *dataset.Table {
	t := &dataset.Table{Name: "t", DType: dtype.Uint8, Rows: rows, RowBytes: rowBytes, Data: make([]byte, rows*rowBytes)}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range t.Data {
		t.Data[i] = byte(r.Uint32())
	}
	return t
}

func TestVerify_CountsRowsThatDiffer(t *testing.T) {
	r := &run{table: tableOf(10, 4)}
	rows := []int64{9, 0, 9, 5}
	var out []byte
	for _, row := range rows {
		out = append(out, r.table.Row(row)...)
	}
	r.verify(r.table, rows, out, 0)
	out[3] ^= 1   // row 9
	out[12] ^= 1  // row 5, two bytes
	out[13] ^= 80 // of it
	r.verify(r.table, rows, out, 0)
	if r.verified != 8 || r.mismatches != 2 {
		t.Errorf("verified %d, mismatches %d; want 8 and 2", r.verified, r.mismatches)
	}
}

// liar is a codec that decodes one row wrongly.
type liar struct {
	raw
	decoded int
}

func (l *liar) Encode(dst, row []byte) (int, error) { return copy(dst[:cap(dst)], row), nil }
func (l *liar) EncodeBound() int                    { return l.rowBytes }
func (l *liar) Decode(row, src []byte) (int, error) {
	n := copy(row, src)
	if l.decoded++; l.decoded%10 == 4 { // row 3 of 10
		row[2] ^= 0xff
	}
	return n, nil
}

func TestTryCodec_ReportsTheFirstDifference(t *testing.T) {
	table := tableOf(10, 4)
	table.Data[3*4+2] = 0x0f
	res, err := tryCodec(&liar{raw: raw{4}}, table, time.Millisecond)
	if want := "row 3 byte 2: 0xf0, source 0x0f"; err != nil || res.RoundTrip != want {
		t.Errorf("got %q, %v; want %q", res.RoundTrip, err, want)
	}
}

func TestNewSpeed_PercentilesByNearestRank(t *testing.T) {
	var times []time.Duration
	for ms := range 100 {
		times = append(times, time.Duration(100-ms)*time.Millisecond)
	}
	s := newSpeed(times, 5050, 5_050_000)
	if (s.BatchLatency != Latency{50, 95, 99}) || s.LookupsPerSecond != 1000 || s.OutputGBPerSecond != 0.001 {
		t.Errorf("%+v", s)
	}
	if s := newSpeed([]time.Duration{time.Second}, 1, 1); (s.BatchLatency != Latency{1000, 1000, 1000}) {
		t.Errorf("%+v", s)
	}
	if s := newSpeed(nil, 0, 1); s != (Speed{}) {
		t.Errorf("%+v", s)
	}
}
