//go:build long

package rank_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

// TestLong_Bounds logs what rank saves, trained on a sample as by cachebench compress, and the bounds, of the tables of docs/codecs.md: real ones,
// one cut to short rows, generated vectors, and vectors that are trained here on the text of wikitext2_tokens.npy, of its words and of its
// pieces of 100 words. How frequent a word is shows in the length of its vector.
func TestLong_Bounds(t *testing.T) {
	real := func(file string) func(t *testing.T) ([]byte, int) {
		return func(t *testing.T) ([]byte, int) { return codectest.Table(t, file) }
	}
	trained := func(piece, epochs int) func(t *testing.T) ([]byte, int) {
		return func(t *testing.T) ([]byte, int) {
			return codectest.TrainVectors(codectest.Text(t), piece, epochs), 4 * codectest.VectorColumns
		}
	}
	for _, c := range []struct {
		name  string
		table func(t *testing.T) (table []byte, rowBytes int)
		cut   bool       // to rows of 32 bytes
		least [3]float64 // that float32, bfloat16 and float16 must save
	}{
		{"ncf_user", real("ncf_user.npy"), false, [3]float64{16.9, 34.5, 15.6}},
		{"ncf_user, cut", real("ncf_user.npy"), true, [3]float64{15, 32, 13}},
		{"reddit", real("reddit.npz"), false, [3]float64{29, 60, 42}},
		{"vectors", func(*testing.T) ([]byte, int) { return codectest.Vectors(1, 4000, 128), 512 }, false, [3]float64{17.4, 35, 16}},
		{"words", trained(0, 3), false, [3]float64{20, 40, 22}},
		{"pieces", trained(100, 12), false, [3]float64{18.8, 38, 19}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, rowBytes := c.table(t)
			for i, cast := range []string{"", "bf16", "f16"} {
				columns := rowBytes / 4
				if c.cut {
					columns = []int{8, 16, 16}[i]
				}
				file := filepath.Join(t.TempDir(), "table.npy")
				header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", len(table)/4/columns, columns)
				npy := append(fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", header), table...)
				if err := os.WriteFile(file, npy, 0o644); err != nil {
					t.Fatal(err)
				}
				results, err := experiment.Compress(t.Context(), experiment.CompressConfig{Features: file, Cast: cast, Codec: "rank", Seed: 1, Bounds: true}, experiment.Quiet{})
				if err != nil {
					t.Fatal(err)
				}
				r, b := &results[0], results[0].Bounds
				t.Logf("%-4s rows of %d B: rank %.1f %%; bounds: leading bits %.1f, of each column %.1f, held out %.1f", cast, r.RowBytes, r.SavingPercent, b.Order0,
					b.Columns, b.HeldOut)
				if r.RoundTrip != "ok" || r.SavingPercent < c.least[i] {
					t.Errorf("%s: saving %.2f %%, round trip %s, want at least %.1f %%", cast, r.SavingPercent, r.RoundTrip, c.least[i])
				}
			}
		})
	}
}
