package cache

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/placement"
	"github.com/tensorcache/tensorcache/transfer"
)

// HostTier is how the host tier lays out its rows.
type HostTier = transfer.Mode

// Layouts of the host tier.
const (
	// InPlace gives every row a fixed place: no index, but no host memory saved.
	InPlace = transfer.InPlace
	// Packed puts rows back to back: saves host memory, for an index of 8 bytes a row on every device, outside the budget.
	Packed = transfer.Packed
)

// Options say what a cache serves and with what. The zero value of a field is its default.
type Options struct {
	// Tables are the tables to serve, 1 to 256; Gather names them by their index here.
	Tables []Table
	// Budget is the bytes per device for slots, hashmap, row bits and tail slack together; slot bookkeeping is host
	// memory. Codec metadata (Stats.CodecBytes) and a packed host tier's index come on top; with 8 devices, the overlay too,
	// on the first of them. At most 2^59. No default.
	Budget int64
	// Budgets, unless empty, are the bytes of each device, in their order, instead of Budget.
	Budgets []int64
	// Device is the backend: "cuda" is NVIDIA GPUs, "host" their emulation in Go memory, "auto" (default) cuda where the build
	// has it (docs/gpu.md) and there are the GPUs asked for, of compute capability 8.0 on, else host; DeviceInfo says which. GPUs
	// that cannot read each other's memory have caches of their own: Stats.Placement.Cliques.
	Device string
	// Devices is how many devices the data store spans, 1 to 8: the first GPUs, unless GPUs names them. Default 1, or as many as
	// GPUs names.
	Devices int
	// GPUs are the ordinals of the GPUs that the data store spans, each once, in the order in which On counts them; On(i) is
	// GPU GPUs[i]. The host backend emulates as many devices. Default: the first Devices ones.
	GPUs []int
	// Placement says which rows lie in which slabs where there are several devices: PlacementAuto (default), PlacementPartition or
	// PlacementReplicate.
	Placement string
	// Rates are what PlacementAuto weighs copies by: `cachebench devices --measure` measures them. Without them it copies
	// nothing, and Stats.Placement has no predictions. Default: none.
	Rates Rates
	// Codec is "none", the name of a codec (docs/codecs.md lists them), or "auto" (default): for each table the one that is predicted to
	// deliver the most bytes of hits a second with this budget, Link and Training; TableStats.Choice says why. Table.WithCodec names another for
	// one table. Codecs that lose bits are used by name only.
	Codec string
	// Link is the bytes a second at which one device reads misses from the host tier, for "auto". Default: 55e9, PCIe 5 x16. The host
	// backend picks as GPUs behind that link would, so that a cache is the same on both; with NoLink, "auto" measures how fast this
	// machine's processors decode, and picks what suits them, with little regard to Seed: often rows as they are.
	Link float64
	// HostTier is InPlace (default) or Packed.
	HostTier HostTier
	// HostNodes are the memory nodes (NUMA) of the host on which the host tier lies, by the system's numbers, each once: page by page
	// in turns, where a node is full elsewhere. AnyNode alone leaves memory and threads where the system puts them. Default: where
	// the machine is known to have several, those nearest to the devices, if the system says so of every device, and the process has no memory policy of
	// its own. Stats.HostMemory says which, and why. Nodes whose memory cannot be had are an error of New; a system that refuses to lay memory on them is logged.
	HostNodes []int
	// Admission decides which rows are cached; it belongs to the cache from New on. Default: admission.NewFrequency().
	Admission admission.Policy
	// Training yields the batches (table, row numbers) from which the policy learns before the cache is filled. A
	// yielded slice is used until the next one is asked for. Where a codec is to be picked, up to 2 Mi lookups of them are read before the
	// tables are, and say how many of the lookups the rows that fit would get. Default: none.
	Training admission.Training
	// Cold leaves the cache empty at first; else New fills it, with what the policy ranks highest after Training, then with
	// rows nobody asked for.
	Cold bool
	// Restore is a file that Cache.Snapshot wrote: New admits what it names before anything else, and lets the policy
	// observe it once. A file that is missing, damaged or of other tables is as good as none: Stats.RestoreError says why.
	// Default: none.
	Restore string
	// Refresh says how the cache follows its workload from then on. Default: only by calls of Cache.Refresh.
	Refresh RefreshOptions
	// Capture hears of the accesses that Refresh.Accesses and Refresh.Keys sample, in about their order, for traces of what a
	// cache does in production; lost are those that came too fast before or among them. It is called by one goroutine at a
	// time, not under any lock that Gather takes, every 20 ms at most and by Close; samples are used until it returns. It must
	// not call the cache's Refresh, SetBudget or Close. Default: none.
	Capture func(samples []Sample, lost int64)
	// Overlay is the bytes of page-locked host memory for rows that Update has published and the host tier does not have
	// yet: at least the longest row's are taken. Default 16 MiB.
	Overlay int64
	// Telemetry says how the cache is observed. Default: by the global OpenTelemetry providers, if there are any.
	Telemetry TelemetryOptions
	// Seed picks the rows that codecs are trained on. Any value; equal seeds give equal caches unless the policy says
	// otherwise.
	Seed uint64
	// Workers is how many goroutines the host uses for loading, and the host backend for each batch. Default GOMAXPROCS.
	Workers int
	// HostThreads is how many goroutines a GPU has help it with the misses of small rows (up to 768 B) of large tables (from
	// 4 GiB), in batches of 16,384 rows and more: each keeps a processor busy then; of more than 8 only
	// as many work as leave 4 processors free, but 8 at least. Whether they do is measured batch by batch. Default half of GOMAXPROCS, at most 8; negative for none.
	HostThreads int
}

// NoLink, as Options.Link, says that there is no GPU: "auto" is to pick what this machine's processors decode best.
const NoLink = registry.NoLink

// maxBudget keeps sums over devices from overflowing.
const maxBudget = 1 << 59

// EnsureDefaults sets the fields that are zero to their defaults.
func (o *Options) EnsureDefaults() {
	if o.Device == "" {
		o.Device = "auto"
	}
	if o.Devices == 0 {
		o.Devices = max(1, len(o.GPUs))
	}
	if o.Placement == "" {
		o.Placement = PlacementAuto
	}
	if len(o.Budgets) > 0 && o.Budget == 0 {
		o.Budget = slices.Max(o.Budgets)
	}
	if o.Codec == "" {
		o.Codec = registry.Auto
	}
	if o.Admission == nil {
		o.Admission = admission.NewFrequency()
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Overlay == 0 {
		o.Overlay = 16 << 20
	}
	o.Refresh.ensureDefaults()
	o.Telemetry.ensureDefaults()
	if o.Training == nil {
		o.Training = func(func(int, []int64) bool) {}
	}
}

// budgets returns each device's.
func (o *Options) budgets() []int64 {
	if len(o.Budgets) > 0 {
		return o.Budgets
	}
	return slices.Repeat([]int64{o.Budget}, o.Devices)
}

// gpus returns the GPUs' ordinals.
func (o *Options) gpus() []int {
	if len(o.GPUs) > 0 {
		return o.GPUs
	}
	all := make([]int, o.Devices)
	for i := range all {
		all[i] = i
	}
	return all
}

// fitsGPUs returns why there are not the GPUs that the options ask for, nil where there are.
func (o *Options) fitsGPUs() error {
	if err := cuda.Usable(); err != nil {
		return err
	}
	if last, n := slices.Max(o.gpus()), cuda.Count(); last >= n {
		return fmt.Errorf("cache: GPU (%d) must be one of the %d that there are", last, n)
	}
	return nil
}

// validateDevices is Validate of what says which devices, and how rows lie on them.
func (o *Options) validateDevices(fault func(string, ...any)) {
	if o.Devices < 1 || o.Devices > slab.MaxSlabs {
		fault("cache: Devices (%d) must be 1 to %d", o.Devices, slab.MaxSlabs)
	}
	if len(o.GPUs) > 0 && len(o.GPUs) != o.Devices {
		fault("cache: GPUs (%v) must be as many as Devices (%d)", o.GPUs, o.Devices)
	}
	for i, g := range o.GPUs {
		if g < 0 {
			fault("cache: GPUs (%d) must not be negative", g)
		}
		if slices.Contains(o.GPUs[:i], g) {
			fault("cache: GPUs (%d) must not be named twice", g)
		}
	}
	switch o.Device {
	case "auto", "host":
	case "cuda":
		if err := cuda.Usable(); err != nil {
			fault("cache: Device (cuda) is not usable: %v", err)
		} else if n := cuda.Count(); len(o.GPUs) > 0 && slices.Max(o.GPUs) >= n {
			fault("cache: GPUs (%d) must be 0 to %d, the GPUs there are", slices.Max(o.GPUs), n-1)
		} else if o.Devices > n {
			fault("cache: Devices (%d) must be 1 to %d, the GPUs there are", o.Devices, n)
		}
	default:
		fault("cache: Device (%q) must be auto, host or cuda", o.Device)
	}
	if len(o.Budgets) > 0 && len(o.Budgets) != o.Devices {
		fault("cache: Budgets (%d of them) must be one for each of the %d devices", len(o.Budgets), o.Devices)
	}
	for i, b := range o.Budgets {
		if b < 1 || b > maxBudget {
			fault("cache: Budgets (%d B for device %d) must be 1 B to 2^59 B", b, i)
		}
	}
	switch o.Placement {
	case PlacementAuto, PlacementPartition, PlacementReplicate:
	default:
		fault("cache: Placement (%q) must be %s, %s or %s", o.Placement, PlacementAuto, PlacementPartition, PlacementReplicate)
	}
	if (o.Rates != Rates{}) {
		if err := o.Rates.Validate(); err != nil {
			fault("cache: Rates: %v", err)
		}
	}
}

// Validate reports all options that are out of range at once, as ErrOptions.
func (o *Options) Validate() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		fault("cache: this machine is big-endian; formats are little-endian and used in place")
	}
	if n := len(o.Tables); n < 1 || n > hashmap.MaxTables {
		fault("cache: Tables (%d) must be 1 to %d", n, hashmap.MaxTables)
	}
	for _, t := range o.Tables {
		if err := t.validate(); err != nil {
			fault("%v", err)
		}
	}
	if o.Budget < 1 {
		fault("cache: Budget (%d B) must be at least one slot (%d B) and its hashmap", o.Budget, slab.Align)
	}
	if o.Budget > maxBudget {
		fault("cache: Budget (%d B) must be at most 2^59 B", o.Budget)
	}
	o.validateDevices(fault)
	o.validateNodes(fault)
	if err := registry.Check(o.Codec); err != nil {
		fault("%v", err)
	}
	if o.Link != NoLink && !(o.Link >= 0 && o.Link <= 1e15) {
		fault("cache: Link (%g B/s) must be 0 to 1e15, or NoLink", o.Link)
	}
	if o.HostTier != InPlace && o.HostTier != Packed {
		fault("cache: HostTier (%v) must be InPlace or Packed", o.HostTier)
	}
	if o.Overlay < 0 || o.Overlay > maxBudget {
		fault("cache: Overlay (%d B) must be 0 to 2^59 B", o.Overlay)
	}
	o.Refresh.validate(fault)
	o.Telemetry.validate(fault)
	if o.Capture != nil && o.Refresh.Accesses == 0 && o.Refresh.Keys == 0 {
		fault("cache: Capture needs Refresh.Accesses or Refresh.Keys (0, 0) above 0")
	}
	if o.Workers < 0 {
		fault("cache: Workers (%d) must not be negative", o.Workers)
	}
	if len(faults) == 0 {
		return nil
	}
	return &optionsError{faults}
}

// Values of Options.Placement.
const (
	// PlacementAuto copies the rows looked up most to every slab, as far as the cost model says that it pays.
	PlacementAuto = "auto"
	// PlacementPartition has every row in one slab.
	PlacementPartition = "partition"
	// PlacementReplicate has every row in every slab, as far as it has room.
	PlacementReplicate = "replicate"
)

// Rates are how fast a device reads its own slab, another's and the host tier: see package placement.
type Rates = placement.Rates

// RefreshOptions say how a cache follows its workload. The zero value of a field is its default; of all, a cache whose rows
// change only by Refresh.
type RefreshOptions struct {
	// Interval is the time from the end of one cycle to the begin of the next. Default 0: none in the background.
	Interval time.Duration
	// MaxChurn is the share of a slab, 0 to 1, that one cycle takes from cached rows for others. Default 0.25.
	MaxChurn float64
	// MaxBytes is how many bytes one cycle writes to slabs, all devices together. Default 256 MiB.
	MaxBytes int64
	// Accesses is the share of all accesses, 0 to 1, that the policy observes. Default 1/16 where Interval is positive, else
	// 0.
	Accesses float64
	// Keys is the share of all keys, 0 to 1, whose every access is sampled: Stats.Estimate is made from them, and OnKeys hears of
	// them. 1/64 is plenty for millions of keys. Default 0.
	Keys float64
	// OnKeys is called by one goroutine at a time, not under any lock that Gather takes; rows are row numbers in about the
	// order of access, used until it returns. It must not call the cache's Refresh, SetBudget or Close. Default: none.
	OnKeys func(table int, rows []int64)
}

func (o *RefreshOptions) ensureDefaults() {
	if o.MaxChurn == 0 {
		// cachebench run --drift 200 --batches 800 reaches 0.896 of the best hit rate with 0.1, 0.918 with this, and 0.922
		// with 1.
		o.MaxChurn = 0.25
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	if o.Accesses == 0 && o.Interval > 0 {
		o.Accesses = 1. / 16
	}
}

func (o *RefreshOptions) validate(fault func(string, ...any)) {
	if o.Interval < 0 {
		fault("cache: Refresh.Interval (%v) must not be negative", o.Interval)
	}
	for _, share := range []struct {
		name  string
		value float64
	}{{"MaxChurn", o.MaxChurn}, {"Accesses", o.Accesses}, {"Keys", o.Keys}} {
		if !(share.value >= 0 && share.value <= 1) {
			fault("cache: Refresh.%s (%v) must be 0 to 1", share.name, share.value)
		}
	}
	if o.MaxBytes < 0 {
		fault("cache: Refresh.MaxBytes (%d B) must not be negative", o.MaxBytes)
	}
}

// AnyNode, alone in Options.HostNodes, leaves host memory and threads where the system puts them.
const AnyNode = -1

// UnknownNode stands for the node of a device where the system does not say.
const UnknownNode = numa.Unknown

// validateNodes is Validate of HostNodes; whether the machine has them is known later.
func (o *Options) validateNodes(fault func(string, ...any)) {
	if slices.Equal(o.HostNodes, []int{AnyNode}) {
		return
	}
	for i, n := range o.HostNodes {
		if n < 0 {
			fault("cache: HostNodes (%d) must not be negative, but for AnyNode alone", n)
		}
		if slices.Contains(o.HostNodes[:i], n) {
			fault("cache: HostNodes (%d) must not be named twice", n)
		}
	}
}
