package workload

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

// TestStandIns_SameSeed: the same seed gives the same bytes however many rows there are, and another seed others.
func TestStandIns_SameSeed(t *testing.T) {
	t.Parallel()
	for _, s := range StandIns {
		table := func(rows int, seed uint64) []byte {
			t.Helper()
			b, err := s.Table(rows, seed)
			if err != nil || len(b) != rows*s.RowBytes() {
				t.Fatalf("%s: %d bytes, %v", s.Name, len(b), err)
			}
			return b
		}
		a := table(500, 1)
		if !bytes.Equal(a[:100*s.RowBytes()], table(100, 1)) {
			t.Errorf("%s: fewer rows are others", s.Name)
		}
		if bytes.Equal(a, table(500, 2)) {
			t.Errorf("%s: another seed gave the same table", s.Name)
		}
		if _, err := s.Table(0, 1); err == nil || !strings.Contains(err.Error(), "stand-in "+s.Name+": rows (0)") {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	if _, err := FindStandIn("words"); err == nil || err.Error() != `workload: stand-in ("words") must be one of [shares places documents weather weights]` {
		t.Error(err)
	}
}

// TestStandIns_Rows: shares sum to one and have one value a row, and places have 32 ones.
func TestStandIns_Rows(t *testing.T) {
	t.Parallel()
	for name, ones := range map[string]int{"shares": 0, "places": 32} {
		s, err := FindStandIn(name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := s.Table(300, 3)
		if err != nil {
			t.Fatal(err)
		}
		s.eachRow(data, func(row []byte) {
			values, sum, n := map[float32]bool{}, 0.0, 0
			for j := range s.Columns {
				if x := math.Float32frombits(binary.LittleEndian.Uint32(row[4*j:])); x != 0 {
					values[x] = true
					sum += float64(x)
					n++
				}
			}
			if len(values) != 1 || ones != 0 && (n != ones || !values[1]) || ones == 0 && math.Abs(sum-1) > 1e-4 {
				t.Fatalf("%s: %d values, %d elements, sum %g", name, len(values), n, sum)
			}
		})
	}
}

// TestFloat16_Nearest: of every float16 below infinity, and of the middle of two.
func TestFloat16_Nearest(t *testing.T) {
	t.Parallel()
	value := func(h uint16) float64 {
		if e := int(h >> 10 & 31); e > 0 {
			return math.Ldexp(float64(1024+int(h&1023)), e-25)
		}
		return math.Ldexp(float64(h&1023), -24)
	}
	for h := range uint16(0x7bff) {
		a, b := value(h), value(h+1)
		even := h + h&1
		if float16(a) != h || float16((a+b)/2) != even || float16(-a) != h|0x8000 && a != 0 {
			t.Fatalf("%#x: %#x, %#x", h, float16(a), float16((a+b)/2))
		}
	}
}
