package cache

import (
	"cmp"
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
	// BackendAuto uses NVIDIA GPUs if the build supports them (docs/gpu.md) and the machine has the GPUs asked for, with compute
	// capability 8.0 or higher. Otherwise it uses the host backend. DeviceInfo returns what was chosen.
	BackendAuto Backend = "auto"
	// BackendHost emulates devices with the memory and the processors of the host.
	BackendHost Backend = "host"
	// BackendCUDA uses NVIDIA GPUs. New fails if there are none.
	BackendCUDA Backend = "cuda"
)

// PlacementMode says in which slabs a row lies if there are several devices.
type PlacementMode string

const (
	// PlacementAuto copies the most frequent rows to every slab, as many as the cost model predicts to save time.
	PlacementAuto PlacementMode = place.Auto
	// PlacementPartition puts every row in one slab.
	PlacementPartition PlacementMode = place.Partition
	// PlacementReplicate puts every row in every slab that has room for it.
	PlacementReplicate PlacementMode = place.Replicate
)

// HostTier is the layout of the rows in the host tier.
type HostTier string

const (
	// InPlace stores rows at a fixed stride. It needs no index, but compression saves no host memory.
	InPlace HostTier = "inplace"
	// Packed stores rows back to back, which saves host memory. Every device holds an index of 8 bytes a row, outside the budget.
	Packed HostTier = "packed"
)

// Codec is the name of a row codec. docs/codecs.md lists them.
type Codec string

const (
	// CodecAuto picks for each table the codec whose batches are predicted to take the least time, given the budget and the training
	// batches. It measures the GPU, or takes Options.Link. TableStats.Choice has the reason. It picks lossless codecs only.
	CodecAuto Codec = registry.Auto
	// CodecNone stores rows as they are.
	CodecNone Codec = registry.None
)

// Options configure a cache. The zero value of a field is its default.
type Options struct {
	// Tables are the 1 to 256 tables to serve. Methods of Cache name a table by its index in this slice.
	Tables []Table
	// GPUMemory is the device memory, in bytes per device, for slots, hashmap, row bits and tail slack together, at most 2^59. It has no
	// default. Not included are codec metadata (Stats.CodecBytes), the index of a packed host tier, scratch memory, and, with 8 devices,
	// a copy of the overlay on the first one.
	GPUMemory int64
	// Budget is the earlier name of GPUMemory, which replaces it. It goes with the next release.
	Budget int64
	// Budgets, if not empty, are the memory of each device in bytes, in the order of the devices. They replace GPUMemory. Every device has the whole hashmap,
	// 20 bytes for each row that is cached on any: a budget that is much smaller than the others limits the rows.
	Budgets []int64
	// Codec is the codec of all tables for which Table.WithCodec sets none. Default CodecAuto.
	Codec Codec
	// Link is the rate, in bytes a second, at which one device reads misses from the host tier. If it is set, CodecAuto picks by it and by
	// an H200's figures, the same on all machines and backends. By default CodecAuto measures the first GPU for up to 300 ms, and keeps
	// what it measured in the user's cache folder, or in the file that the environment variable TENSORCACHE_CODEC_COSTS names ("off":
	// nowhere). The host backend, and tables of up to 1 MiB, take 55e9, PCIe 5 x16, by default, and so do policies, which rank rows by the
	// time that their hits save. With NoLink, CodecAuto measures how fast this machine's processors decode, and picks what suits them,
	// mostly CodecNone. Seed does not make a measured choice repeatable.
	Link float64
	// Devices selects the devices and how rows are placed on them.
	Devices DeviceOptions
	// Host configures the use of host memory and processors.
	Host HostOptions
	// Admission configures which rows are cached.
	Admission AdmissionOptions
	// Refresh configures how the cache follows its workload. Default: it changes only when Cache.Refresh is called.
	Refresh RefreshOptions
	// Shared allocates the memory that batches read so that other processes can map it: serve.Listen lets clients attach to such a
	// cache only. Tables of Adopt are not possible then. It is for Linux, the host backend, and GPUs with virtual memory management. Default: false.
	Shared bool
	// State is a folder on a tmpfs that keeps host memory for the next process. New makes the folder if there is none. The next New with this
	// folder takes over tables, with all updates, instead of loading them: those of Open, and those that begin without rows, if all of their rows are in host
	// memory. Name, file, type, capacity, codec and layout must be the same; other tables are loaded. Attached processes read on, and attach to the
	// new owner without a second copy. State needs Shared, tables of different names, and Linux. One process at a time can have the folder.
	// Close keeps its contents; remove it to free the memory. Default: none.
	State string
	// Capture receives the accesses sampled by Refresh.Accesses and Refresh.Keys, roughly in order. lost is the number of samples that
	// were overwritten before they could be read. Capture is called by one goroutine at a time, every 20 ms or less often, and by Close,
	// and Gather waits for no lock that is held during the call. The slice must not be used after the call. Capture must not call
	// Refresh, SetGPUMemory or Close of the cache. Default: none.
	Capture func(samples []Sample, lost int64)
	// Telemetry configures tracing, metrics and logs. Default: the global OpenTelemetry providers, if there are any.
	Telemetry TelemetryOptions
	// Seed selects the rows that codecs are trained on. Equal seeds and inputs give equal caches if the policy is deterministic.
	Seed uint64
}

// DeviceOptions select the devices of a cache and how rows are placed on them.
type DeviceOptions struct {
	// Backend is the kind of devices. GPUs that cannot read each other's memory cache separately: see Stats.Placement.Cliques. Default
	// BackendAuto.
	Backend Backend
	// Count is the number of devices, 1 to 8. Default: the length of GPUs, or 1.
	Count int
	// GPUs are the ordinals of the GPUs to use, each once. Cache.On(i) is GPU GPUs[i]. The host backend emulates as many devices.
	// Default: the first Count GPUs.
	GPUs []int
	// Placement selects in which slabs a row lies. Default PlacementAuto.
	Placement PlacementMode
	// Rates are the memory rates of the devices, as `cachebench devices --measure` measures them. Without rates PlacementAuto copies
	// nothing, and Stats.Placement has no predictions. Default: none.
	Rates placement.Rates
}

// HostOptions configure the use of host memory and processors.
type HostOptions struct {
	// Tier is the layout of the host tier. Default InPlace.
	Tier HostTier
	// Memory is the most host memory, in bytes, for the rows and indices of the host tiers of all tables. Tables of FromPages keep as many rows
	// there as fit, and read the others from their pages; other tables must fit, resident ones too, as they are
	// loaded there. A table of pages needs 12.1 bytes for each of its rows, and an eighth of the rest is for rows read lately or by Prefetch. Default: no limit.
	// What the cache takes on top is in Stats.HostTakenBytes, and logged if it is much.
	Memory int64
	// Inclusive keeps rows that a slab holds in the host tier, too. By default, of a table of FromPages that does not fit in Memory, they give
	// way to rows that no slab holds.
	Inclusive bool
	// NoEqualRows does not look for equal rows of tables whose rows lie in place. Otherwise they are looked for when a table is loaded or adopted, and share slots in
	// slabs, as equal rows of packed tiers always do. A sample decides whether that pays: at least a third of the rows must need no slot of their own, or 1/32 must
	// have one content, zeros for example, in which case the rows of such contents share slots. Rows below 32 bytes are not looked at, and of those below 128 only
	// such contents are found. Rows of resident tables and of tables of pages (FromPages) never share. Default: false.
	NoEqualRows bool
	// ColdRow is how long a row that is neither in a slab nor in the host tier takes in a batch of many such rows, for the division of device and host memory between a
	// table of FromPages and other tables, and for copies of rows on several devices. Default: New reads some rows of the table to measure it.
	ColdRow time.Duration
	// ColdTimeout bounds how long a batch waits for rows that are neither in a slab nor in the host tier. Default: 10 s.
	ColdTimeout time.Duration
	// Nodes are the memory nodes (NUMA) for the host tier, by the system's numbers, each once. Pages are interleaved over them; when a
	// node is full, its pages go elsewhere. AnyNode alone leaves the placement of memory and threads to the system. Default: on machines
	// with several nodes, the nodes nearest to the devices, if the system reports the node of every device and the process has no
	// memory policy of its own. Stats.HostMemory has the nodes and the reason. New returns an error for nodes whose memory this process
	// cannot use. If the system refuses to place memory on nodes, that is logged.
	Nodes []int
	// Threads is the number of goroutines that help each GPU with the misses of rows up to 768 bytes of tables from 4 GiB on, in batches
	// of at least 16,384 rows. Each keeps a processor busy meanwhile. Above 8, only as many of them work as leave 4 processors free.
	// The cache measures continuously whether they help. Default: half of GOMAXPROCS, at most 8. Negative: none.
	Threads int
	// Overlay is the page-locked memory, in bytes, for updated rows that are not yet in the host tier. It holds at least the longest
	// row. Default: 16 MiB, or room for four versions of every row if that is less.
	Overlay int64
	// Workers is the number of goroutines that load tables, and that the host backend uses for each batch. Default GOMAXPROCS.
	Workers int
	// Progress is told, while New reads a table, how many of its rows have been read: after every 4 MiB or more, in ascending order, the
	// last time for all rows. Calls are one at a time, from several goroutines. Reading waits for them. Default: none.
	Progress func(table int, rows, of int64)
}

// AdmissionOptions configure which rows are cached when New returns, and by which policy later.
type AdmissionOptions struct {
	// Policy decides which rows are cached. New takes ownership of it. Default: admission.NewFrequency().
	Policy admission.Policy
	// Training yields batches (table, row numbers) from which the policy learns before the cache is filled. A yielded slice must stay
	// unchanged until the next one is requested. CodecAuto reads up to 2^21 lookups of it before the tables, to predict hit ratios.
	// Default: none.
	Training admission.Training
	// Cold leaves the cache empty. Otherwise New fills it with the rows that the policy ranks highest, then with any other rows.
	Cold bool
	// Restore is the path of a file written by Cache.Snapshot. New admits the rows listed there first, and the policy observes each of
	// them once. A file that is missing, damaged or of other tables is ignored; Stats.RestoreError has the reason. Default: none.
	Restore string
}

// NoLink, as Options.Link, makes CodecAuto pick the codec that this machine's processors decode fastest.
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
	o.Budget = cmp.Or(o.Budget, o.GPUMemory)
	if len(o.Budgets) > 0 && o.Budget == 0 {
		o.Budget = slices.Max(o.Budgets)
	}
	o.GPUMemory = cmp.Or(o.GPUMemory, o.Budget)
	if o.Codec == "" {
		o.Codec = CodecAuto
	}
	if o.Admission.Policy == nil {
		o.Admission.Policy = admission.NewFrequency()
	}
	if o.Host.Workers == 0 {
		o.Host.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Host.ColdTimeout == 0 {
		o.Host.ColdTimeout = 10 * time.Second
	}
	if o.Host.Overlay == 0 {
		versions := 0.0
		for _, t := range o.Tables {
			if t.source != nil {
				versions += 4 * tableBytes(&t) / float64(t.RowBytes()) * float64(place.OverlayBytes(t.RowBytes()))
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

// budgets returns the budget of each device in bytes.
func (o *Options) budgets() []int64 {
	if len(o.Budgets) > 0 {
		return o.Budgets
	}
	return slices.Repeat([]int64{o.Budget}, o.Devices.Count)
}

// gpus returns the ordinals of the GPUs.
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

// fitsGPUs returns nil if the machine has the GPUs that the options ask for, else the reason why not.
func (o *Options) fitsGPUs() error {
	if err := cuda.Usable(); err != nil {
		return err
	}
	if last, n := slices.Max(o.gpus()), cuda.Count(); last >= n {
		return fmt.Errorf("cache: GPU (%d) must be one of the %d that there are", last, n)
	}
	return nil
}

// validateDevices checks the backend, the devices, their budgets and the placement.
func (o *Options) validateDevices(invalid func(string, ...any)) {
	if o.Devices.Count < 1 || o.Devices.Count > slab.MaxSlabs {
		invalid("cache: Devices.Count (%d) must be 1 to %d", o.Devices.Count, slab.MaxSlabs)
	}
	if len(o.Devices.GPUs) > 0 && len(o.Devices.GPUs) != o.Devices.Count {
		invalid("cache: Devices.GPUs (%v) must be as many as Devices.Count (%d)", o.Devices.GPUs, o.Devices.Count)
	}
	for i, g := range o.Devices.GPUs {
		if g < 0 {
			invalid("cache: Devices.GPUs (%d) must not be negative", g)
		}
		if slices.Contains(o.Devices.GPUs[:i], g) {
			invalid("cache: Devices.GPUs (%d) must not be named twice", g)
		}
	}
	switch o.Devices.Backend {
	case BackendAuto, BackendHost:
	case BackendCUDA:
		if err := cuda.Usable(); err != nil {
			invalid("cache: Devices.Backend (cuda) is not usable: %v", err)
		} else if n := cuda.Count(); len(o.Devices.GPUs) > 0 && slices.Max(o.Devices.GPUs) >= n {
			invalid("cache: Devices.GPUs (%d) must be 0 to %d, the GPUs there are", slices.Max(o.Devices.GPUs), n-1)
		} else if o.Devices.Count > n {
			invalid("cache: Devices.Count (%d) must be 1 to %d, the GPUs there are", o.Devices.Count, n)
		}
	default:
		invalid("cache: Devices.Backend (%q) must be auto, host or cuda", o.Devices.Backend)
	}
	if len(o.Budgets) > 0 && len(o.Budgets) != o.Devices.Count {
		invalid("cache: Budgets (%d of them) must be one for each of the %d devices", len(o.Budgets), o.Devices.Count)
	}
	for i, b := range o.Budgets {
		if b < 1 || b > maxBudget {
			invalid("cache: Budgets (%d B for device %d) must be 1 B to 2^59 B", b, i)
		}
	}
	switch o.Devices.Placement {
	case PlacementAuto, PlacementPartition, PlacementReplicate:
	default:
		invalid("cache: Devices.Placement (%q) must be %s, %s or %s", o.Devices.Placement, PlacementAuto, PlacementPartition, PlacementReplicate)
	}
	if (o.Devices.Rates != placement.Rates{}) {
		if err := o.Devices.Rates.Validate(); err != nil {
			invalid("cache: Devices.Rates: %v", err)
		}
	}
}

// Validate reports all options that are out of range in one error that wraps ErrOptions.
func (o *Options) Validate() error {
	all := new(optionsError)
	invalid := all.add
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		invalid("cache: this machine is big-endian; formats are little-endian and used in place")
	}
	if n := len(o.Tables); n < 1 || n > hashmap.MaxTables {
		invalid("cache: Tables (%d) must be 1 to %d", n, hashmap.MaxTables)
	}
	for _, t := range o.Tables {
		err := t.validate()
		if err == nil && o.Shared {
			err = t.kind.checkShared(&t)
		}
		if err != nil {
			invalid("%v", err)
		}
	}
	if o.State != "" {
		if !o.Shared {
			invalid("cache: State (%s) needs Shared", o.State)
		}
		names := map[string]bool{}
		for _, t := range o.Tables {
			if names[t.name] {
				invalid("cache: State (%s) needs tables of different names, not two called %s", o.State, t.name)
			}
			names[t.name] = true
		}
	}
	if o.GPUMemory != o.Budget && o.GPUMemory != 0 {
		invalid("cache: Budget (%d B) is the earlier name of GPUMemory (%d B): set one of them", o.Budget, o.GPUMemory)
	}
	if o.Budget < 1 {
		invalid("cache: GPUMemory (%d B) must be at least one slot (%d B) and its hashmap", o.Budget, slab.Align)
	}
	if o.Budget > maxBudget {
		invalid("cache: GPUMemory (%d B) must be at most 2^59 B", o.Budget)
	}
	o.validateDevices(invalid)
	o.validateNodes(invalid)
	if err := registry.Check(string(o.Codec)); err != nil {
		invalid("%v", err)
	}
	if o.Link != NoLink && !(o.Link >= 0 && o.Link <= 1e15) {
		invalid("cache: Link (%g B/s) must be 0 to 1e15, or NoLink", o.Link)
	}
	if o.Host.Memory < 0 || o.Host.Memory > maxBudget {
		invalid("cache: Host.Memory (%d B) must be 0 to 2^59 B", o.Host.Memory)
	}
	if o.Host.ColdRow < 0 {
		invalid("cache: Host.ColdRow (%v) must not be negative", o.Host.ColdRow)
	}
	if o.Host.ColdTimeout < 0 {
		invalid("cache: Host.ColdTimeout (%v) must not be negative", o.Host.ColdTimeout)
	}
	if o.Host.Tier != InPlace && o.Host.Tier != Packed {
		invalid("cache: Host.Tier (%q) must be inplace or packed", o.Host.Tier)
	}
	if o.Host.Overlay < 0 || o.Host.Overlay > maxBudget {
		invalid("cache: Host.Overlay (%d B) must be 0 to 2^59 B", o.Host.Overlay)
	}
	o.Refresh.validate(invalid)
	o.Telemetry.validate(invalid)
	if o.Capture != nil && o.Refresh.Accesses == 0 && o.Refresh.Keys == 0 {
		invalid("cache: Capture needs Refresh.Accesses or Refresh.Keys (0, 0) above 0")
	}
	if o.Host.Workers < 0 {
		invalid("cache: Host.Workers (%d) must not be negative", o.Host.Workers)
	}
	return all.orNil()
}

// RefreshOptions configure how a cache follows its workload. The zero value of a field is its default. With the zero RefreshOptions,
// cached rows change only when Cache.Refresh is called.
type RefreshOptions struct {
	// Interval is the time from the end of one background cycle to the start of the next. Default 0: no background cycles.
	Interval time.Duration
	// MaxChurn is the largest share of a slab, 0 to 1, that one cycle evicts. Default 0.25.
	MaxChurn float64
	// MaxBytes is the most bytes that one cycle writes to the slabs of all devices together. Default 256 MiB.
	MaxBytes int64
	// Accesses is the share of all accesses, 0 to 1, that the policy observes. Default 1/8 if Interval is positive, else 0.
	Accesses float64
	// Misses is the share of the misses, Accesses to 1, that the policy observes: they say which rows to admit, and few accesses miss once
	// the cache has learnt. A hit that is sampled counts Misses ÷ Accesses times. Policies that are not an admission.Weigher, and Capture, have
	// the share Accesses of the misses. Default: 1 if Interval is positive and Accesses is 0, else Accesses.
	Misses float64
	// Keys is the share of all keys, 0 to 1, whose accesses are all sampled, for Stats.Estimate and OnKeys. 1/64 is enough for
	// millions of keys. Default 0.
	Keys float64
	// OnKeys receives the accesses to the keys sampled by Keys: row numbers of a table, roughly in the order of access. It is called by
	// one goroutine at a time, and Gather waits for no lock that is held during the call. rows must not be used after the call. OnKeys
	// must not call Refresh, SetGPUMemory or Close of the cache. Default: none.
	OnKeys func(table int, rows []int64)
}

func (o *RefreshOptions) ensureDefaults() {
	if o.MaxChurn == 0 {
		// cachebench run --drift 200 --batches 800 reaches 0.896 of the best hit rate with 0.1, 0.918 with 0.25, and 0.922 with 1.
		o.MaxChurn = 0.25
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	if o.Accesses == 0 && o.Interval > 0 {
		// With 16 GiB in proportion and 3 lookups a row, opened without training, 1/8 and all misses reach 0.7 points less hits than if all
		// accesses were observed, 1/16 and all misses 1.0 to 1.3, 1/16 of both 5.8 (docs/notebook/admission.md).
		o.Accesses = 1. / 8
		o.Misses = cmp.Or(o.Misses, 1)
	}
	o.Misses = cmp.Or(o.Misses, o.Accesses)
}

func (o *RefreshOptions) validate(invalid func(string, ...any)) {
	if o.Interval < 0 {
		invalid("cache: Refresh.Interval (%v) must not be negative", o.Interval)
	}
	for _, share := range []struct {
		name  string
		value float64
	}{{"MaxChurn", o.MaxChurn}, {"Accesses", o.Accesses}, {"Misses", o.Misses}, {"Keys", o.Keys}} {
		if !(share.value >= 0 && share.value <= 1) {
			invalid("cache: Refresh.%s (%v) must be 0 to 1", share.name, share.value)
		}
	}
	if o.Misses < o.Accesses || o.Misses > 0 && o.Accesses == 0 {
		invalid("cache: Refresh.Misses (%v) must be at least Refresh.Accesses (%v), and 0 if that is", o.Misses, o.Accesses)
	}
	if o.MaxBytes < 0 {
		invalid("cache: Refresh.MaxBytes (%d B) must not be negative", o.MaxBytes)
	}
}

// AnyNode, alone in Options.Host.Nodes, leaves the placement of host memory and threads to the system.
const AnyNode = -1

// UnknownNode is the node of a device whose node the system does not report.
const UnknownNode = numa.Unknown

// validateNodes checks Host.Nodes. Whether the machine has the nodes is checked later.
func (o *Options) validateNodes(invalid func(string, ...any)) {
	if slices.Equal(o.Host.Nodes, []int{AnyNode}) {
		return
	}
	for i, n := range o.Host.Nodes {
		if n < 0 {
			invalid("cache: Host.Nodes (%d) must not be negative, but for AnyNode alone", n)
		}
		if slices.Contains(o.Host.Nodes[:i], n) {
			invalid("cache: Host.Nodes (%d) must not be named twice", n)
		}
	}
}
