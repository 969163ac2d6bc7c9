package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// embeddingBags is what lab/python/embedding_bag.py measured. Its docstring says what the figures are.
type embeddingBags struct {
	Device, Driver, Commit, Torch string
	TableBytes                    int64 `json:"table_bytes"`
	Seconds                       float64
	Results                       []bagResult
}

// bagResult is the speed of a method with bags of one size.
type bagResult struct {
	Method, DType string
	RowBytes      int `json:"row_bytes"`
	Batch, Bag    int
	Speed         float64 `json:"gb_per_second"`
}

// torchMethod names what the others are compared with.
const torchMethod = "torch"

// Bags, types of rows, and table that documents have figures of.
var (
	documentedBags   = []int{1, 10, 40, 200}
	documentedDTypes = []string{"float32", "bfloat16"}
)

const documentedBagBytes = 2 << 30

func readEmbeddingBags(path string) (*embeddingBags, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var e embeddingBags
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &e, e.check()
}

// check returns what makes the results unfit for documents.
func (e *embeddingBags) check() error {
	if e.Device == "" || strings.HasPrefix(e.Device, "host") || e.Driver == "" || e.Commit == "" || e.Torch == "" || e.TableBytes != documentedBagBytes {
		return fmt.Errorf("summed bags (%q, driver %q, commit %q, PyTorch %q, tables of %d bytes) must be of a GPU, and of tables of %d bytes",
			e.Device, e.Driver, e.Commit, e.Torch, e.TableBytes, documentedBagBytes)
	}
	methods := e.methods()
	if !slices.Contains(methods, torchMethod) || len(methods) < 2 {
		return fmt.Errorf("summed bags of %s must be of %s and of tensorcache", strings.Join(methods, ", "), torchMethod)
	}
	for _, dtype := range documentedDTypes {
		for _, batch := range e.batches() {
			for _, method := range methods {
				for _, bag := range documentedBags {
					if r := e.result(dtype, batch, method, bag); r == nil || r.Speed <= 0 {
						return fmt.Errorf("summed bags: %s must be measured with %s, %d rows in bags of %d", method, dtype, batch, bag)
					}
				}
			}
		}
	}
	return nil
}

// methods and batches are those measured, in the order of the results.
func (e *embeddingBags) methods() []string {
	return distinct(e.Results, func(r *bagResult) string { return r.Method })
}

func (e *embeddingBags) batches() []int {
	return distinct(e.Results, func(r *bagResult) int { return r.Batch })
}

// distinct returns what is told of items, each once, in their order.
func distinct[T any, K comparable](items []T, of func(*T) K) (all []K) {
	for i := range items {
		if k := of(&items[i]); !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	return all
}

// result is nil if there is none.
func (e *embeddingBags) result(dtype string, batch int, method string, bag int) *bagResult {
	i := slices.IndexFunc(e.Results, func(r bagResult) bool {
		return r.DType == dtype && r.Batch == batch && r.Method == method && r.Bag == bag
	})
	if i < 0 {
		return nil
	}
	return &e.Results[i]
}

// table has a line for each method and type of rows, with its speed by bags in the longest batches, and in brackets how many times torch's that is. e may be nil.
func (e *embeddingBags) table() string {
	if e == nil {
		return "Not measured on a GPU yet.\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, driver %s, commit %s, PyTorch %s.\n\n| rows | |", e.Device, e.Driver, e.Commit, e.Torch)
	for _, bag := range documentedBags {
		fmt.Fprintf(&b, " bags of %d |", bag)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(documentedBags)) + "\n")
	for _, dtype := range documentedDTypes {
		batch := slices.Max(e.batches())
		for _, method := range e.methods() {
			fmt.Fprintf(&b, "| %d B %s | %s |", e.result(dtype, batch, method, documentedBags[0]).RowBytes, dtype, method)
			for _, bag := range documentedBags {
				speed := e.result(dtype, batch, method, bag).Speed
				b.WriteString(" " + figure(speed))
				if method != torchMethod {
					fmt.Fprintf(&b, " (%.2f)", speed/e.result(dtype, batch, torchMethod, bag).Speed)
				}
				b.WriteString(" |")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// TestEmbeddingBags_Reading pins which results are unfit for documents, and what the block says of fit ones and of none. TestGPUDocs checks the documents.
func TestEmbeddingBags_Reading(t *testing.T) {
	t.Parallel()
	sound := func() *embeddingBags {
		e, err := readEmbeddingBags("testdata/embedding-bag.json")
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for want, spoil := range map[string]func(*embeddingBags){
		"must be of a GPU":                    func(e *embeddingBags) { e.Device = "host, x86_64, 2 threads" },
		"tables of 1048576 bytes) must be of": func(e *embeddingBags) { e.TableBytes = 1 << 20 },
		"commit \"\"":                         func(e *embeddingBags) { e.Commit = "" },
		"summed bags of torch must be of torch and": func(e *embeddingBags) {
			e.Results = slices.DeleteFunc(e.Results, func(r bagResult) bool { return r.Method != torchMethod })
		},
		"torch must be measured with bfloat16, 200000 rows in bags of 200": func(e *embeddingBags) { e.result("bfloat16", 200_000, torchMethod, 200).Bag = 100 },
		"tensorcache ibp4 must be measured with float32, 200000 rows in bags of 1": func(e *embeddingBags) {
			e.result("float32", 200_000, "tensorcache ibp4", 1).Speed = 0
		},
	} {
		e := sound()
		spoil(e)
		if err := e.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	want := "Example GPU, driver 1.2, CUDA 13.0, commit 0123456789ab, PyTorch 2.15.0.\n\n" +
		"| rows | | bags of 1 | bags of 10 | bags of 40 | bags of 200 |\n|---|---|---|---|---|---|\n" +
		"| 512 B float32 | torch | 300 | 1200 | 1600 | 1700 |\n| 512 B float32 | tensorcache ibp4 | 900 (3.00) | 1800 (1.50) | 2000 (1.25) | 2040 (1.20) |\n" +
		"| 256 B bfloat16 | torch | 150 | 600 | 900 | 950 |\n| 256 B bfloat16 | tensorcache ibp4 | 600 (4.00) | 1200 (2.00) | 1350 (1.50) | 1140 (1.20) |\n"
	if have := sound().table(); have != want {
		t.Errorf("%q, want %q", have, want)
	}
	if have := (*embeddingBags)(nil).table(); have != "Not measured on a GPU yet.\n" {
		t.Errorf("%q", have)
	}
}
