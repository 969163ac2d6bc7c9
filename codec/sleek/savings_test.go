package sleek

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/internal/npy"
)

func realTable(t *testing.T, file string) (table []byte, rowBytes int) {
	dir := os.Getenv("TENSORCACHE_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	r, err := npy.Open(filepath.Join(dir, file), 2, "features")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("real tables are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rowBytes = r.RowBytes()
	table = make([]byte, r.Rows()*rowBytes)
	for rest := table; len(rest) > 0; {
		n, err := r.Read(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n*rowBytes:]
	}
	return table, rowBytes
}

// toBFloat16 cuts float32 words to their upper halves.
func toBFloat16(table []byte) []byte {
	var b []byte
	for i := 0; i < len(table); i += 4 {
		b = append(b, table[i+2], table[i+3])
	}
	return b
}

func TestX(t *testing.T) {
	for _, f := range []struct {
		file string
		l    layout
		bf   bool
	}{{"cora.npz", float32s, false}, {"pubmed_tx.npz", float32s, false}, {"reddit.npz", float32s, false}, {"ncf_user.npy", float32s, false}, {"sz_testdouble.npy", float64s, false},
		{"ncf_user.npy", bfloat16, true}, {"reddit.npz", bfloat16, true}, {"sz_testfloat.npy", float32s, false}} {
		table, rb := realTable(t, f.file)
		if f.bf {
			table, rb = toBFloat16(table), rb/2
		}
		t.Log(f.file, rb)
		var b *bounded
		for _, e := range []float64{0, 1. / 1024} {
			if e != 0 {
				b, _ = newBounded(f.l, e)
			}
			for g := 16; g <= 1024; g *= 2 {
				c, _ := newCodec(f.l, rb, g, b)
				t.Logf("  %d: %.2f", g, 100*(1-float64(c.sampleBytes(table))/float64(len(table))))
			}
		}
		// nibble estimates
		for g := 8; g <= 128; g *= 2 {
			c, _ := newCodec(f.l, rb, 16, nil)
			c.subchunk = g
			c.subchunks = (rb + g - 1) / g
			var hist [65]int
			var codes [64]uint64
			for s := table; len(s) > 0; s = s[rb:] {
				for i := range c.subchunks {
					hist[c.code(codes[:], s[i*g:min((i+1)*g, rb)])]++
				}
			}
			// 16 widths: greedy: best by dp
			best := dp(hist[:c.lanes.width+1], 16, float64(g/c.word)) + 4*float64(sum(hist[:]))
			best8 := dp(hist[:c.lanes.width+1], 8, float64(g/c.word)) + 3*float64(sum(hist[:]))
			t.Logf("  nibble %d: %.2f  3-bit %.2f", g, 100*(1-best/8/float64(len(table))), 100*(1-best8/8/float64(len(table))))
		}
	}
}
func sum(h []int) (s int) {
	for _, x := range h {
		s += x
	}
	return
}
func dp(h []int, k int, words float64) float64 {
	n := len(h)
	best := make([]float64, n+1)
	for i := range best {
		best[i] = 1e300
	}
	best[0] = 0
	for range k {
		next := append([]float64{}, best...)
		for i := 0; i < n; i++ {
			cnt := 0
			for j := i; j < n; j++ {
				cnt += h[j]
				if v := best[i] + float64(cnt)*words*float64(j); v < next[j+1] {
					next[j+1] = v
				}
			}
		}
		best = next
	}
	return best[n]
}
