package transfer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
	"github.com/tensorcache/tensorcache/kernels"
)

// KeptEnv is the environment variable that names the file in which measurements are kept. The value "off" keeps none.
// If it is not set, the file is tensorcache/codec-costs.json in the user's cache folder.
const KeptEnv = "TENSORCACHE_CODEC_COSTS"

const (
	maxCosts     = 128     // of these, the latest are kept
	maxCostBytes = 1 << 20 // a longer file was not written by this package
	costFormat   = 1
)

// costKey identifies what a measurement depends on. If any of it changes, the measurement is taken again.
type costKey struct {
	GPU        string  `json:"gpu"`
	Link       int64   `json:"link"`        // nominal, bytes a second
	TableClass int     `json:"table_class"` // the table's raw bytes are below 2 to the power of this
	RowBytes   int     `json:"row_bytes"`
	DType      string  `json:"dtype"`
	Tier       string  `json:"tier"`
	Probes     bool    `json:"planted,omitempty"` // misses were measured on probe rows; the name is that of older versions
	BatchClass int     `json:"batch_class"`
	Threads    int     `json:"threads"` // host threads that share misses, 0 for none
	Processors int     `json:"processors"`
	Codecs     string  `json:"codecs"` // with their ratios, rounded to a twentieth
	Code       string  `json:"code"`   // version of the kernels
	Limit      float64 `json:"limit"`  // most seconds for measuring
}

// costEntry is one measurement.
type costEntry struct {
	Key     costKey                   `json:"key"`
	Costs   map[string]registry.Costs `json:"costs"`
	Pick    string                    `json:"pick,omitempty"`
	Seconds float64                   `json:"seconds"`
	At      time.Time                 `json:"at"`
}

type costFile struct {
	Format  int         `json:"format"`
	Entries []costEntry `json:"entries"`
}

// costPath returns the path of the file of measurements, or "" if none are kept.
func costPath() string {
	switch path := os.Getenv(KeptEnv); path {
	case "off":
		return ""
	case "":
		dir, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		return filepath.Join(dir, "tensorcache", "codec-costs.json")
	default:
		return path
	}
}

// costMu orders the reads and writes of this process. If two processes write at once, one measurement is lost and
// will be taken again.
var costMu sync.Mutex

// readCosts returns the measurements in a file. It ignores files and entries that this version would not write.
func readCosts(path string) []costEntry {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > maxCostBytes {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCostBytes))
	if err != nil {
		return nil
	}
	var file costFile
	if json.Unmarshal(b, &file) != nil || file.Format != costFormat {
		return nil
	}
	return slices.DeleteFunc(file.Entries, func(e costEntry) bool { return !e.valid() })
}

// valid says whether the costs can be used. They must be those of None, of at least one other codec of the key if it
// has others, and of no further codec.
func (e *costEntry) valid() bool {
	names := strings.Fields(e.Key.Codecs)
	measured := 0
	for _, n := range names {
		name, _, _ := strings.Cut(n, "=")
		if c, ok := e.Costs[name]; ok {
			if measured++; !c.Valid() {
				return false
			}
		}
	}
	_, plain := e.Costs[registry.None]
	return plain && measured == len(e.Costs) && measured >= min(2, len(names)) && e.Seconds >= 0
}

// storeCosts adds an entry to the file. It replaces an entry with the same key. If there are too many, it removes the
// oldest.
func storeCosts(path string, e costEntry) error {
	if path == "" {
		return nil
	}
	costMu.Lock()
	defer costMu.Unlock()
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("transfer: %s must be a regular file", path)
	}
	all := slices.DeleteFunc(readCosts(path), func(old costEntry) bool { return old.Key == e.Key })
	all = append(all, e)
	slices.SortStableFunc(all, func(a, b costEntry) int { return b.At.Compare(a.At) })
	all = all[:min(len(all), maxCosts)]
	b, err := json.MarshalIndent(costFile{costFormat, all}, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), atomicfile.Write(path, b))
}

// findCosts returns the measurement with a key, if there is one.
func findCosts(path string, key costKey) (costEntry, bool) {
	if path == "" {
		return costEntry{}, false
	}
	costMu.Lock()
	defer costMu.Unlock()
	all := readCosts(path)
	i := slices.IndexFunc(all, func(e costEntry) bool { return e.Key == key })
	if i < 0 {
		return costEntry{}, false
	}
	return all[i], true
}

// key returns the key of a measurement of the codecs.
func (m *measuring) key(of dtype.Type, mode Mode) costKey {
	info := m.d.Info()
	k := costKey{
		GPU: info.Name, Link: info.HostLink, TableClass: bits.Len64(uint64(m.rows) * uint64(m.rowBytes)), RowBytes: m.rowBytes, DType: of.String(),
		Tier: mode.String(), Probes: m.useProbes, BatchClass: bits.Len(uint(m.n)), Processors: runtime.GOMAXPROCS(0), Code: kernels.Version(), Limit: m.limit.Seconds(),
	}
	if m.o.Share != nil {
		k.Threads = cmp.Or(m.o.Share.Threads, max(1, defaultShareThreads()))
	}
	var codecs []string
	for _, c := range m.codecs {
		codecs = append(codecs, fmt.Sprintf("%s=%.2f", c.Name, math.Round(20*c.Ratio)/20))
	}
	slices.Sort(codecs)
	k.Codecs = strings.Join(codecs, " ")
	return k
}

// measured is one auto-selection by measurements. It holds what was measured, or found in the file, and the path at
// which the result is kept.
type measured struct {
	path  string
	entry costEntry
	have  bool
}

// measure returns the codecs' costs on the tier's device. It takes them from the file, or else measures them.
func (u *measured) measure(t *Tier, o Options, batch float64, codecs []registry.Trained) (registry.Measured, error) {
	m := t.newMeasuring(*o.Measure, batch, codecs)
	m.ctx = o.Context
	u.path = costPath()
	key, name := m.key(o.DType, o.Mode), t.home.Info().Name
	if u.entry, u.have = findCosts(u.path, key); u.have {
		return registry.Measured{
			Costs: u.entry.Costs, Pick: u.entry.Pick, Kept: true, Seconds: u.entry.Seconds,
			By: fmt.Sprintf("hits and misses as measured on this %s on %s", name, u.entry.At.Format(time.DateOnly)),
		}, nil
	}
	start := time.Now()
	costs, err := measureDevice(m)
	seconds := max(0, time.Since(start)-m.warm).Seconds()
	if ended := o.Context.Err(); ended != nil && err != nil {
		return registry.Measured{}, ended
	}
	if err != nil {
		if err = ifMemory(err); err == nil {
			return registry.Measured{By: "(the device has too little memory left to be measured)"}, nil
		}
		if errors.Is(err, errTooSlow) {
			return registry.Measured{By: fmt.Sprintf("(measuring this device takes longer than %v)", m.limit)}, nil
		}
		if lost := t.home.Err(); lost != nil {
			return registry.Measured{}, err
		}
		return registry.Measured{By: fmt.Sprintf("(measuring this device failed: %v)", err)}, nil // the table can be served without measurements
	}
	u.entry = costEntry{Key: key, Costs: costs, Seconds: seconds, At: time.Now().UTC().Truncate(time.Second)}
	if u.have = u.entry.valid(); !u.have {
		return registry.Measured{By: "(measuring this device gave times that cannot be)"}, nil
	}
	return registry.Measured{
		Costs: costs, Seconds: seconds, By: fmt.Sprintf("hits and misses as measured on this %s now, with batches of %d rows in %.0f ms", name, m.n, 1000*seconds),
	}, nil
}

// picked stores the measurement with the codec that was picked by it. If the file cannot be written, the next cache
// measures again.
func (u *measured) picked(codec string) {
	if u.have && u.entry.Pick != codec {
		u.entry.Pick = codec
		storeCosts(u.path, u.entry)
	}
}
