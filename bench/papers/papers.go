// Package papers measures the claims of the papers that this project's methods come from: what a paper says, and what this machine finds. docs/papers.md has the tables.
//
// A claim that needs a GPU says so, and which command measures it there, if one does. Tables that cannot be had, such as the papers' models, are generated in their shape, and the claim's
// Data says that.
package papers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
)

// Names are those of the papers, and All stands for all of them.
var Names = []string{"ibp", "sleek", "ndzip", "buddy", "zipnn"}

// All is the name of all papers.
const All = "all"

// Claim is what a paper says, and what was measured. Its JSON form is an element of what `cachebench reproduce --json` prints.
type Claim struct {
	Paper string `json:"paper"`
	// Where is the figure, table or section. What is claimed is What, and Claimed its figure; Measured is ours, "" if there is none.
	Where    string `json:"where"`
	What     string `json:"what"`
	Claimed  string `json:"claimed"`
	Measured string `json:"measured"`
	// Verdict is Better, Equal, Worse, NeedsGPU or OtherData.
	Verdict string `json:"verdict"`
	// Data says what it was measured on, and Command what measures it, if another command does.
	Data    string `json:"data,omitempty"`
	Command string `json:"command,omitempty"`
}

// Verdicts.
const (
	Better    = "better"      // beyond what the paper claims, by more than Equal allows
	Equal     = "equal"       // within two points, or a twentieth of a ratio
	Worse     = "worse"       // below
	NeedsGPU  = "needs a GPU" // nothing that a processor can measure
	OtherData = "other data"  // measured on a table that was generated: the paper's figure is of another
)

// Options say where data are.
type Options struct {
	// Data is the folder of real tables; "" for $TENSORCACHE_DATA, or ../shared/data if there is such a folder. What is not there is generated.
	Data string
	Seed uint64
	// Progress, if not nil, is told what is measured next.
	Progress func(what string)
}

// Result is what a run found. Its JSON form is what `cachebench reproduce --json` prints.
type Result struct {
	Claims []Claim `json:"claims"`
}

// run is one call of Reproduce.
type run struct {
	o      Options
	claims []Claim
}

// Reproduce measures the claims of a paper, or of All.
func Reproduce(ctx context.Context, paper string, o Options) (*Result, error) {
	if paper != All && !slices.Contains(Names, paper) {
		return nil, fmt.Errorf("paper (%q) must be %s or %s", paper, strings.Join(Names, ", "), All)
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Data == "" {
		if o.Data = os.Getenv("TENSORCACHE_DATA"); o.Data == "" {
			o.Data = filepath.Join("..", "shared", "data")
		}
	} else if info, err := os.Stat(o.Data); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("data (%s) must be a folder", o.Data)
	}
	r := &run{o: o}
	for _, one := range Names {
		if paper != All && paper != one {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		o.Progress("measuring the claims of " + one)
		measure := map[string]func(context.Context) error{"ibp": r.ibp, "sleek": r.sleek, "ndzip": r.ndzip, "buddy": r.buddy, "zipnn": r.zipnn}[one]
		if err := measure(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", one, err)
		}
	}
	return &Result{r.claims}, nil
}

// add adds a claim that was measured.
func (r *run) add(paper, where, what, claimed, measured, verdict, data string) {
	r.claims = append(r.claims, Claim{Paper: paper, Where: where, What: what, Claimed: claimed, Measured: measured, Verdict: verdict, Data: data})
}

// held returns a verdict on measurements of the file that a claim is of, and OtherData of any other.
func held(verdict, about, file string) string {
	if about != file {
		return OtherData
	}
	return verdict
}

// gpu adds a claim that only a GPU can measure, and the command that does, "" for none.
func (r *run) gpu(paper, where, what, claimed, command string) {
	r.claims = append(r.claims, Claim{Paper: paper, Where: where, What: what, Claimed: claimed, Verdict: NeedsGPU, Command: command})
}

// points compares percentages: two points count as equal.
func points(claimed, measured float64) string { return compare(measured-claimed, 2) }

// ratios compares ratios, of which more is better: a twentieth counts as equal.
func ratios(claimed, measured float64) string { return compare(measured/claimed-1, 0.05) }

func compare(more, equal float64) string {
	switch {
	case more > equal:
		return Better
	case more < -equal:
		return Worse
	}
	return Equal
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", v) }
func times(v float64) string   { return fmt.Sprintf("%.2f ×", v) }

// table returns a real table of the data folder, or else a stand-in: a table that is generated in its shape. about says which it is.
func (r *run) table(file, standIn string) (t *dataset.Table, about string, err error) {
	path := filepath.Join(r.o.Data, file)
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		t, err = dataset.Load(path)
		return t, file, err
	}
	t, err = dataset.StandIn(standIn, r.o.Seed)
	return t, "generated in shape of " + standIn, err
}

// stored encodes all rows of a table by a codec that is trained on it, and returns the codec and the lengths; rows that do not shrink count as they are.
func stored(t *dataset.Table, name string, seed uint64) (codec.Codec, []int32, error) {
	c, err := registry.Train(name, t.Sample(seed), t.RowBytes, t.DType)
	if err != nil {
		return nil, nil, err
	}
	lengths := make([]int32, t.Rows)
	if c == nil {
		for i := range lengths {
			lengths[i] = int32(t.RowBytes)
		}
		return nil, lengths, nil
	}
	dst := make([]byte, c.EncodeBound())
	for i := range lengths {
		n, err := c.Encode(dst, t.Row(int64(i)))
		if errors.Is(err, codec.ErrIncompressible) {
			n, err = t.RowBytes, nil
		}
		if err != nil {
			return nil, nil, err
		}
		lengths[i] = int32(n)
	}
	return c, lengths, nil
}

// ratio returns raw ÷ stored bytes of rows.
func ratio(t *dataset.Table, lengths []int32) float64 {
	all := int64(0)
	for _, n := range lengths {
		all += int64(n)
	}
	return float64(t.Bytes()) / float64(max(1, all))
}

// best returns the codec that stores a table in the fewest bytes, and its ratio.
func best(t *dataset.Table, seed uint64) (string, float64, error) {
	c, _, err := registry.Smallest(t.Sample(seed), t.RowBytes, t.DType)
	if err != nil || c == nil {
		return registry.None, 1, err
	}
	_, lengths, err := stored(t, c.Name(), seed)
	return c.Name(), ratio(t, lengths), err
}

// tableOf returns a table of elements.
func tableOf(name string, of dtype.Type, data []byte, rowBytes int) *dataset.Table {
	rows := len(data) / rowBytes
	return &dataset.Table{Name: name, DType: of, Rows: rows, RowBytes: rowBytes, Data: data[:rows*rowBytes]}
}
