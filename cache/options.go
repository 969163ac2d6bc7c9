package cache

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// Backend says which devices a cache uses.
type Backend string

const (
	// BackendAuto is NVIDIA GPUs where the build has them (docs/gpu.md) and the machine has those asked for, of compute capability 8.0
	// on; else the host backend. DeviceInfo says which.
	BackendAuto Backend = "auto"
	// BackendHost emulates devices in Go memory.
	BackendHost Backend = "host"
	// BackendCUDA is NVIDIA GPUs. New fails without them.
	BackendCUDA Backend = "cuda"
)

// PlacementMode says in which slabs rows lie where there are several devices.
type PlacementMode string

const (
	// PlacementAuto copies the rows looked up most to every slab, as far as the cost model says that it pays.
	PlacementAuto PlacementMode = place.Auto
	// PlacementPartition has every row in one slab.
	PlacementPartition PlacementMode = place.Partition
	// PlacementReplicate has every row in every slab, as far as it has room.
	PlacementReplicate PlacementMode = place.Replicate
)

// HostTier is how the host tier lays out its rows.
type HostTier string

const (
	// InPlace gives every row a fixed place: no index, but no host memory saved.
	InPlace HostTier = "inplace"
	// Packed puts rows back to back: saves host memory, for an index of 8 bytes a row on every device, outside the budget.
	Packed HostTier = "packed"
)

// Codec is the name of a row codec: docs/codecs.md lists them.
type Codec string

const (
	// CodecAuto picks for each table the codec that is predicted to deliver the most bytes of hits a second with the budget, Options.Link
	// and the training batches. TableStats.Choice says why. It never picks a codec that loses bits.
	CodecAuto Codec = registry.Auto
	// CodecNone stores rows as they are.
	CodecNone Codec = registry.None
)

// Options say what a cache serves and with what. The zero value of a field is its default.
type Options struct {
	// Tables are the tables to serve, 1 to 256. Calls name them by their index here.
	Tables []Table
	// Budget is the bytes per device for slots, hashmap, row bits and tail slack together, at most 2^59. Slot bookkeeping is host
	// memory. Beside the budget lie codec metadata (Stats.CodecBytes), a packed host tier's index, and with 8 devices the overlay,
	// on the first of them. No default.
	Budget int64
	// Budgets, unless empty, are the bytes of each device, in their order, instead of Budget.
	Budgets []int64
	// Codec is the codec of all tables but those of Table.WithCodec. Default CodecAuto.
	Codec Codec
	// Link is the bytes a second at which one device reads misses from the host tier, for CodecAuto. Default 55e9: PCIe 5 x16. The host
	// backend picks as GPUs behind that link would, so that a cache is the same on both. With NoLink, CodecAuto measures how fast this
	// machine's processors decode, and picks what suits them, often rows as they are; Seed does not fix that choice.
	Link float64
	// Devices says which devices to use, and how rows lie on them.
	Devices DeviceOptions
	// Host says how host memory and processors are used.
	Host HostOptions
	// Admission says which rows are cached.
	Admission AdmissionOptions
	// Refresh says how the cache follows its workload. Default: only by calls of Cache.Refresh.
	Refresh RefreshOptions
	// Capture hears of the accesses that Refresh.Accesses and Refresh.Keys sample, in about their order; lost are those that came too
	// fast before or among them. One goroutine at a time calls it, not under any lock that Gather takes, at most every 20 ms and in
	// Close. Samples are used until it returns. It must not call the cache's Refresh, SetBudget or Close. Default: none.
	Capture func(samples []Sample, lost int64)
	// Telemetry says how the cache is observed. Default: by the global OpenTelemetry providers, if there are any.
	Telemetry TelemetryOptions
	// Seed picks the rows that codecs are trained on. Equal seeds give equal caches, unless the policy says otherwise.
	Seed uint64
}

// DeviceOptions say which devices a cache uses, and how rows lie on them.
type DeviceOptions struct {
	// Backend is what devices to use. GPUs that cannot read each other's memory have caches of their own: Stats.Placement.Cliques.
	// Default BackendAuto.
	Backend Backend
	// Count is how many devices the data store spans, 1 to 8: the first GPUs, unless GPUs names them. Default 1, or as many as GPUs names.
	Count int
	// GPUs are the ordinals of the GPUs that the data store spans, each once, in the order in which On counts them: On(i) is GPU
	// GPUs[i]. The host backend emulates as many devices. Default: the first Count ones.
	GPUs []int
	// Placement says in which slabs rows lie. Default PlacementAuto.
	Placement PlacementMode
	// Rates are what PlacementAuto weighs copies by: `cachebench devices --measure` measures them. Without them it copies nothing, and
	// Stats.Placement has no predictions. Default: none.
	Rates placement.Rates
}

// HostOptions say how a cache uses the host's memory and processors.
type HostOptions struct {
	// Tier is the layout of the host tier. Default InPlace.
	Tier HostTier
	// Nodes are the memory nodes (NUMA) on which the host tier lies, by the system's numbers, each once: page by page in turns, and where
	// a node is full elsewhere. AnyNode alone leaves memory and threads to the system. Default: on machines known to have several
	// nodes those nearest to the devices, if the system says so of every device and the process has no memory policy of its own.
	// Stats.HostMemory says which, and why. Nodes whose memory cannot be had are an error of New. A system that refuses to lay memory
	// on nodes is logged.
	Nodes []int
	// Threads is how many goroutines a GPU has help with the misses of small rows (up to 768 B) of large tables (from 4 GiB), in batches of
	// at least 16,384 rows. Each keeps a processor busy then. Of more than 8 threads only as many work as leave 4 processors free, but at
	// least 8. Whether they help is measured batch by batch. Default: half of GOMAXPROCS, at most 8. Negative: none.
	Threads int
	// Overlay is the bytes of page-locked memory for rows that Update has published and the host tier does not have yet; at least the
	// longest row's are taken. Default 16 MiB, or what four versions of every row take, if that is less.
	Overlay int64
	// Workers is how many goroutines load tables, and how many the host backend uses for each batch. Default GOMAXPROCS.
	Workers int
}

// AdmissionOptions say which rows a cache holds when New returns, and by which policy later.
type AdmissionOptions struct {
	// Policy decides which rows are cached. It belongs to the cache from New on. Default: admission.NewFrequency().
	Policy admission.Policy
	// Training yields the batches (table, row numbers) from which the policy learns before the cache is filled. A yielded slice is used
	// until the next one is asked for. CodecAuto reads up to 2 Mi lookups of them before the tables, to predict hit ratios. Default: none.
	Training admission.Training
	// Cold leaves the cache empty at first. Else New fills it with what the policy ranks highest, then with rows nobody asked for.
	Cold bool
	// Restore is a file that Cache.Snapshot wrote: New admits what it names before anything else, and lets the policy observe it once. A
	// file that is missing, damaged or of other tables counts as none: Stats.RestoreError says why. Default: none.
	Restore string
}

// NoLink, as Options.Link, says that there is no GPU: "auto" is to pick what this machine's processors decode best.
const NoLink = registry.NoLink

// maxBudget keeps sums over devices from overflowing.
const maxBudget = 1 << 59

// EnsureDefaults sets the fields that are zero to their defaults.
func (o *Options) EnsureDefaults() {
	if o.Devices.Backend == "" {
		o.Devices.Backend = BackendAuto
	}
	if o.Devices.Count == 0 {
		o.Devices.Count = max(1, len(o.Devices.GPUs))
	}
	if o.Host.Tier == "" {
		o.Host.Tier = InPlace
	}
	if o.Devices.Placement == "" {
		o.Devices.Placement = PlacementAuto
	}
	if len(o.Budgets) > 0 && o.Budget == 0 {
		o.Budget = slices.Max(o.Budgets)
	}
	if o.Codec == "" {
		o.Codec = CodecAuto
	}
	if o.Admission.Policy == nil {
		o.Admission.Policy = admission.NewFrequency()
	}
	if o.Host.Workers == 0 {
		o.Host.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Host.Overlay == 0 {
		versions := 0.0
		for _, t := range o.Tables {
			if t.source != nil {
				versions += 4 * max(float64(t.Rows()), float64(t.capacity)) * float64(place.OverlayBytes(t.RowBytes()))
			}
		}
		o.Host.Overlay = max(1, int64(min(16<<20, versions)))
	}
	o.Refresh.ensureDefaults()
	o.Telemetry.ensureDefaults()
	if o.Admission.Training == nil {
		o.Admission.Training = func(func(int, []int64) bool) {}
	}
}

// budgets returns each device's.
func (o *Options) budgets() []int64 {
	if len(o.Budgets) > 0 {
		return o.Budgets
	}
	return slices.Repeat([]int64{o.Budget}, o.Devices.Count)
}

// gpus returns the GPUs' ordinals.
func (o *Options) gpus() []int {
	if len(o.Devices.GPUs) > 0 {
		return o.Devices.GPUs
	}
	all := make([]int, o.Devices.Count)
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
	if o.Devices.Count < 1 || o.Devices.Count > slab.MaxSlabs {
		fault("cache: Devices.Count (%d) must be 1 to %d", o.Devices.Count, slab.MaxSlabs)
	}
	if len(o.Devices.GPUs) > 0 && len(o.Devices.GPUs) != o.Devices.Count {
		fault("cache: Devices.GPUs (%v) must be as many as Devices.Count (%d)", o.Devices.GPUs, o.Devices.Count)
	}
	for i, g := range o.Devices.GPUs {
		if g < 0 {
			fault("cache: Devices.GPUs (%d) must not be negative", g)
		}
		if slices.Contains(o.Devices.GPUs[:i], g) {
			fault("cache: Devices.GPUs (%d) must not be named twice", g)
		}
	}
	switch o.Devices.Backend {
	case BackendAuto, BackendHost:
	case BackendCUDA:
		if err := cuda.Usable(); err != nil {
			fault("cache: Devices.Backend (cuda) is not usable: %v", err)
		} else if n := cuda.Count(); len(o.Devices.GPUs) > 0 && slices.Max(o.Devices.GPUs) >= n {
			fault("cache: Devices.GPUs (%d) must be 0 to %d, the GPUs there are", slices.Max(o.Devices.GPUs), n-1)
		} else if o.Devices.Count > n {
			fault("cache: Devices.Count (%d) must be 1 to %d, the GPUs there are", o.Devices.Count, n)
		}
	default:
		fault("cache: Devices.Backend (%q) must be auto, host or cuda", o.Devices.Backend)
	}
	if len(o.Budgets) > 0 && len(o.Budgets) != o.Devices.Count {
		fault("cache: Budgets (%d of them) must be one for each of the %d devices", len(o.Budgets), o.Devices.Count)
	}
	for i, b := range o.Budgets {
		if b < 1 || b > maxBudget {
			fault("cache: Budgets (%d B for device %d) must be 1 B to 2^59 B", b, i)
		}
	}
	switch o.Devices.Placement {
	case PlacementAuto, PlacementPartition, PlacementReplicate:
	default:
		fault("cache: Devices.Placement (%q) must be %s, %s or %s", o.Devices.Placement, PlacementAuto, PlacementPartition, PlacementReplicate)
	}
	if (o.Devices.Rates != placement.Rates{}) {
		if err := o.Devices.Rates.Validate(); err != nil {
			fault("cache: Devices.Rates: %v", err)
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
	if err := registry.Check(string(o.Codec)); err != nil {
		fault("%v", err)
	}
	if o.Link != NoLink && !(o.Link >= 0 && o.Link <= 1e15) {
		fault("cache: Link (%g B/s) must be 0 to 1e15, or NoLink", o.Link)
	}
	if o.Host.Tier != InPlace && o.Host.Tier != Packed {
		fault("cache: Host.Tier (%q) must be inplace or packed", o.Host.Tier)
	}
	if o.Host.Overlay < 0 || o.Host.Overlay > maxBudget {
		fault("cache: Host.Overlay (%d B) must be 0 to 2^59 B", o.Host.Overlay)
	}
	o.Refresh.validate(fault)
	o.Telemetry.validate(fault)
	if o.Capture != nil && o.Refresh.Accesses == 0 && o.Refresh.Keys == 0 {
		fault("cache: Capture needs Refresh.Accesses or Refresh.Keys (0, 0) above 0")
	}
	if o.Host.Workers < 0 {
		fault("cache: Host.Workers (%d) must not be negative", o.Host.Workers)
	}
	if len(faults) == 0 {
		return nil
	}
	return &optionsError{faults}
}

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

// AnyNode, alone in Options.Host.Nodes, leaves host memory and threads where the system puts them.
const AnyNode = -1

// UnknownNode stands for the node of a device where the system does not say.
const UnknownNode = numa.Unknown

// validateNodes is Validate of Host.Nodes; whether the machine has them is known later.
func (o *Options) validateNodes(fault func(string, ...any)) {
	if slices.Equal(o.Host.Nodes, []int{AnyNode}) {
		return
	}
	for i, n := range o.Host.Nodes {
		if n < 0 {
			fault("cache: Host.Nodes (%d) must not be negative, but for AnyNode alone", n)
		}
		if slices.Contains(o.Host.Nodes[:i], n) {
			fault("cache: Host.Nodes (%d) must not be named twice", n)
		}
	}
}
