package codec

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// numbered returns a table whose every row says its number, and bytes between the rows that no sample may hold.
func numbered(rows, rowBytes, stride int) []byte {
	table := bytes.Repeat([]byte{0xff}, rows*stride)
	for r := range rows {
		row := table[r*stride:][:rowBytes]
		clear(row)
		binary.LittleEndian.PutUint32(row, uint32(r))
	}
	return table
}

// sampled returns the row numbers that a sample holds.
func sampled(t *testing.T, sample []byte, rowBytes int) (rows []int64) {
	t.Helper()
	if len(sample)%rowBytes != 0 {
		t.Fatalf("%d bytes are not whole rows of %d", len(sample), rowBytes)
	}
	for ; len(sample) > 0; sample = sample[rowBytes:] {
		for i, b := range sample[4:rowBytes] {
			if b != 0 {
				t.Fatalf("byte %d of a sampled row lies outside the row", 4+i)
			}
		}
		rows = append(rows, int64(binary.LittleEndian.Uint32(sample)))
	}
	return rows
}

func TestSample_OneRowOfEachPart(t *testing.T) {
	for _, c := range []struct{ rows, rowBytes, stride, want int }{
		{1, 5, 8, 1},
		{7, 8, 8, 7},
		{sampleRows, 5, 8, sampleRows},
		{sampleRows + 1, 5, 8, sampleRows},
		{100_000, 4, 4, sampleRows},
		{sampleShare * 5000, 4, 4, 5000},
		{9000, 16 << 10, 16 << 10, sampleBytes / (16 << 10)}, // too long for more
		{3, 20 << 20, 20 << 20, 1},
	} {
		rows := sampled(t, Sample(numbered(c.rows, c.rowBytes, c.stride), int64(c.rows), c.rowBytes, int64(c.stride), 1), c.rowBytes)
		if len(rows) != c.want {
			t.Errorf("%d of %d rows of %d bytes were sampled, want %d", len(rows), c.rows, c.rowBytes, c.want)
			continue
		}
		for i, r := range rows {
			if from, to := i*c.rows/c.want, (i+1)*c.rows/c.want; r < int64(from) || r >= int64(to) {
				t.Errorf("row %d of %d was sampled as number %d of %d, want one of [%d, %d)", r, c.rows, i, c.want, from, to)
			}
		}
	}
}

// TestSample_SpreadWithinParts: the row of each part is drawn, not always the same one.
func TestSample_SpreadWithinParts(t *testing.T) {
	const rows, part = sampleRows * 20, 20
	var places [part]int
	for _, r := range sampled(t, Sample(numbered(rows, 4, 4), rows, 4, 4, 2), 4) {
		places[r%part]++
	}
	for p, n := range places {
		if want := sampleRows / part; n < want/2 || n > want*2 {
			t.Errorf("place %d of its part was drawn %d times, want about %d", p, n, want)
		}
	}
}

func TestSample_DeterminedBySeed(t *testing.T) {
	const rows = 50_000
	table := numbered(rows, 4, 4)
	a, again, b := Sample(table, rows, 4, 4, 7), Sample(table, rows, 4, 4, 7), Sample(table, rows, 4, 4, 8)
	if !bytes.Equal(a, again) {
		t.Error("equal seeds give different samples")
	}
	if bytes.Equal(a, b) {
		t.Error("different seeds give the same sample")
	}
}

// TestSample_Copies: training must not see what becomes of the table.
func TestSample_Copies(t *testing.T) {
	table := numbered(10, 4, 4)
	sample := Sample(table, 10, 4, 4, 3)
	want := bytes.Clone(sample)
	for i := range table {
		table[i] = 0xaa
	}
	if !bytes.Equal(sample, want) {
		t.Error("the sample changed with the table")
	}
}

func TestCorruptError_Wraps(t *testing.T) {
	err := CorruptError("ibp4", "row (%d bytes)", 7)
	if want := "codec: corrupt data: ibp4: row (7 bytes)"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
