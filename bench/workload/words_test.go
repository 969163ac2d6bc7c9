package workload

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

func TestWords_Rows(t *testing.T) {
	t.Parallel()
	const rows, vocabulary, mean = 3000, 1433, 18
	table, err := Words(rows, vocabulary, mean, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(table) != rows*vocabulary*4 {
		t.Fatalf("%d bytes, want %d", len(table), rows*vocabulary*4)
	}
	ones := 0
	used := make([]int, vocabulary)
	for row := range rows {
		inRow := 0
		for word := range vocabulary {
			switch v := math.Float32frombits(binary.LittleEndian.Uint32(table[(row*vocabulary+word)*4:])); v {
			case 0:
			case 1:
				inRow++
				used[word]++
			default:
				t.Fatalf("row %d, word %d: %g must be 0 or 1", row, word, v)
			}
		}
		if inRow < 1 || inRow > 2*mean-1 {
			t.Fatalf("row %d has %d words, want 1 to %d", row, inRow, 2*mean-1)
		}
		ones += inRow
	}
	// Some words are drawn twice, so the mean is a little below.
	if got := float64(ones) / rows; got < 0.9*mean || got > mean {
		t.Errorf("%.1f words a row, want 0.9 to 1 × %d", got, mean)
	}
	most, none := 0, 0
	for _, n := range used {
		most = max(most, n)
		if n == 0 {
			none++
		}
	}
	if most < 5*ones/vocabulary || none > vocabulary/10 {
		t.Errorf("the most frequent word is in %d rows of %d in the mean; %d words are in none", most, ones/vocabulary, none)
	}
	if again, _ := Words(rows, vocabulary, mean, 1); !bytes.Equal(again, table) {
		t.Error("the same seed gave another table")
	}
	if other, _ := Words(rows, vocabulary, mean, 2); bytes.Equal(other, table) {
		t.Error("another seed gave the same table")
	}
}

func TestWords_BadArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rows, vocabulary, mean int
		want                   string
	}{
		{0, 10, 1, "workload: words: rows (0) must be at least 1"},
		{1, 0, 1, "workload: words: vocabulary (0) must be 1 to 2147483647"},
		{1, 10, 11, "workload: words: mean (11) must be 1 to 10, the vocabulary"},
		{1, 10, 0, "workload: words: mean (0) must be 1 to 10, the vocabulary"},
		{math.MaxInt / 4, 10, 1, "workload: words: rows × vocabulary (2305843009213693951 × 10) must be at most 2305843009213693951"},
	} {
		if _, err := Words(c.rows, c.vocabulary, c.mean, 1); err == nil || err.Error() != c.want {
			t.Errorf("%d, %d, %d: %v, want %s", c.rows, c.vocabulary, c.mean, err, c.want)
		}
	}
}
