// Package setting reads the values of flags that several commands have: sizes, budgets, lists of GPUs and memory nodes, memory rates. Errors name
// the flag. Safe for concurrent use.
package setting

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// Bytes reads a size of the named flag, such as 64MiB: 1 byte to 2^62 - 1.
func Bytes(flag, text string) (int64, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n == 0 || n > math.MaxInt64/2 {
		return 0, fmt.Errorf("%s (%q) must be a size such as 64MiB", flag, text)
	}
	return int64(n), nil
}

// maxBudget is the most that cache.Options.Budget may be.
const maxBudget = 1 << 59

// Budget reads --gpu-memory: bytes per device, as a size of at most 512PiB or as a share ("5%") of so many raw bytes.
func Budget(text string, raw int64) (int64, error) {
	wrong := fmt.Errorf("--gpu-memory (%q) must be a positive percentage of the table or a size such as 64MiB", text)
	if share, ok := strings.CutSuffix(strings.TrimSpace(text), "%"); ok {
		p, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err != nil || !(p > 0) || math.IsInf(p, 0) {
			return 0, wrong
		}
		// At least 1, which the cache takes for a budget: it then says what the table's rows need.
		return int64(min(max(p/100*float64(raw), 1), maxBudget)), nil
	}
	n, err := humanize.ParseBytes(text)
	switch {
	case err != nil || n == 0:
		return 0, wrong
	case n > maxBudget:
		return 0, fmt.Errorf("--gpu-memory (%q) must be at most 512PiB", text)
	}
	return int64(n), nil
}

// Link reads --link as cache.Options takes it: "" for the default, "none", or GB/s. ok is false for another text.
func Link(text string) (bytesPerSecond float64, ok bool) {
	switch text {
	case "":
		return 0, true
	case "none":
		return cache.NoLink, true
	}
	gb, err := strconv.ParseFloat(text, 64)
	return gb * 1e9, err == nil && gb > 0 && gb <= 1e6
}

// GPUs reads --gpus: "" for none, "all", or numbers. device is the value of --device.
func GPUs(text, device string) (list []int, err error) {
	switch {
	case text == "":
		return nil, nil
	case text != "all":
	case device == "host":
		return nil, errors.New("--gpus all means nothing with --device host: name numbers, as many as devices to emulate")
	default:
		if err := cuda.Usable(); err != nil {
			return nil, fmt.Errorf("--gpus all: %w", err)
		}
		for i := range min(cuda.Count(), slab.MaxSlabs) {
			list = append(list, i)
		}
		return list, nil
	}
	list, ok := numbers(text)
	if !ok {
		return nil, fmt.Errorf("--gpus (%q) must be all, or numbers of GPUs with commas between them, each once", text)
	}
	if len(list) > slab.MaxSlabs {
		return nil, fmt.Errorf("--gpus (%d of them) must be 1 to %d", len(list), slab.MaxSlabs)
	}
	return list, nil
}

// numbers reads a list such as 0,2, of which none is negative or occurs twice.
func numbers(text string) (list []int, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 0 || slices.Contains(list, n) {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}

// HostNodes reads --host-nodes: "" for none, "any", or numbers of memory nodes.
func HostNodes(text string) (nodes []int, err error) {
	switch text {
	case "":
		return nil, nil
	case "any":
		return []int{cache.AnyNode}, nil
	}
	nodes, ok := numbers(text)
	if !ok {
		return nil, fmt.Errorf("--host-nodes (%q) must be any, or numbers of memory nodes with commas between them, each once", text)
	}
	return nodes, nil
}

// Rates reads --rates: "" for none, "local=1900,peer=350,host=50", or a file that `cachebench devices --measure` wrote.
func Rates(text string) (r placement.Rates, err error) {
	if text == "" {
		return r, nil
	}
	if strings.Contains(text, "=") {
		if r, err = placement.ParseRates(text); err != nil {
			err = fmt.Errorf("--rates (%q): %w", text, err)
		}
		return r, err
	}
	f, err := os.Open(text)
	if err != nil {
		return r, fmt.Errorf("--rates: %w", err)
	}
	defer f.Close()
	m, err := placement.DecodeRates(f)
	if err != nil {
		return r, fmt.Errorf("--rates (%s): %w", text, err)
	}
	return m.Rates, nil
}

// MaxRows is the most rows that Rows reads: those that are explained at once.
const MaxRows = 10_000

// Rows reads row numbers and ranges of them of the named flag: 1,17,1000-1010.
func Rows(flag, list string) (rows []int64, err error) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseInt(first, 10, 64)
		to, err2 := strconv.ParseInt(last, 10, 64)
		if err != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("%s (%q) must be row numbers and ranges of them: 1,17,1000-1010", flag, part)
		}
		if to-from >= int64(MaxRows-len(rows)) {
			return nil, fmt.Errorf("%s (%q) must be at most %d rows in all", flag, part, MaxRows)
		}
		for row := from; row <= to; row++ {
			rows = append(rows, row)
		}
	}
	return rows, nil
}
