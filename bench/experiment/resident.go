package experiment

import (
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// AutoSlots, as Resident.Slots, leaves the length of the slots to the cache.
const AutoSlots = "auto"

// Resident says whether the tables of a run are resident (cache.Table.Resident), and how.
type Resident struct {
	// Slots makes them resident: AutoSlots, or the length of a slot in bytes. "" caches some rows. MaxOverflow is the largest share of rows, 0 to 1, that
	// may be longer than a slot whose length is chosen; 0 is the cache's default.
	Slots       string  `json:"resident,omitempty"`
	MaxOverflow float64 `json:"max_overflow,omitempty"`
	// Buddy says where what is longer than the slots lies: a cache.BuddyMemory; "" is the cache's default.
	Buddy string `json:"buddy,omitempty"`
}

// ResidentInfo says how a resident table lies. Bytes are of all devices together.
type ResidentInfo struct {
	TargetBytes int `json:"target_bytes"`
	// Ranges are there if the table has several targets, of which TargetBytes is the mean.
	Ranges []statjson.ResidentRange `json:"ranges,omitempty"`
	// OverflowRows are longer than their slot, by OverflowBytes together.
	OverflowRows  int64 `json:"overflow_rows"`
	OverflowBytes int64 `json:"overflow_bytes"`
	// MaxTargetBytes is the largest target that the table can move to. PastMaxOverflow says that more rows than --max-overflow are longer than their slot.
	MaxTargetBytes  int  `json:"max_target_bytes"`
	PastMaxOverflow bool `json:"past_max_overflow"`
	// DeviceBytes is the memory of slots and words, BuddyBytes that of overflow places: PeerBytes of it lie on devices, and the others in host memory.
	DeviceBytes int64 `json:"device_bytes"`
	BuddyBytes  int64 `json:"buddy_bytes"`
	PeerBytes   int64 `json:"peer_bytes"`
	// CapacityGain is row bytes ÷ target.
	CapacityGain float64 `json:"capacity_gain"`
	// OverflowReads are the measured lookups of rows longer than their slot, and OverflowBytesRead what was read of them from overflow places.
	OverflowReads     int64 `json:"overflow_reads"`
	OverflowBytesRead int64 `json:"overflow_bytes_read"`
}

func residentInfo(s *cache.ResidentStats) *ResidentInfo {
	if s == nil {
		return nil
	}
	return &ResidentInfo{s.TargetBytes, statjson.RangesOf(s.Ranges), s.OverflowRows, s.OverflowBytes, s.MaxTargetBytes, s.PastMaxOverflow, s.DeviceBytes, s.BuddyBytes, s.PeerBytes, s.Gain, s.OverflowReads, s.OverflowBytesRead}
}

// BuddySlots is what Buddy slots make of a codec at the paper's threshold: at most 30 % of the rows are longer than the target.
type BuddySlots struct {
	TargetBytes int `json:"target_bytes"`
	// OverflowRatio is the share of rows that are longer, 0 to 1, and CapacityGain row bytes ÷ target.
	OverflowRatio float64 `json:"overflow_ratio"`
	CapacityGain  float64 `json:"capacity_gain"`
	// Ranges are there if a target for each of several ranges of rows would save enough memory beside that.
	Ranges []statjson.ResidentRange `json:"ranges,omitempty"`
}

// buddySlots returns the choice for rows of these stored lengths.
func buddySlots(stored []int32, rowBytes int) BuddySlots {
	h := buddy.NewHistogram(rowBytes)
	for _, n := range stored {
		h.Add(int(n), 1)
	}
	one := h.Least(buddy.Threshold)
	slots := BuddySlots{TargetBytes: one.Target, OverflowRatio: one.Overflow, CapacityGain: one.Gain}
	layout := buddy.Layout{RowBytes: rowBytes, Rows: int64(len(stored)), Devices: 1}
	if c, _ := buddy.ChooseParts(layout, stored, buddy.Limits{Bytes: math.MaxInt64, Overflow: buddy.Threshold}, buddy.Times{}); len(c.Parts) > 1 {
		slots.Ranges = rangesOf(layout, c.Parts)
	}
	return slots
}

// rangesOf returns parts of a table as ranges of its rows, nil if there is one.
func rangesOf(l buddy.Layout, parts []buddy.Part) (all []statjson.ResidentRange) {
	for _, p := range parts {
		first := p.From * int64(l.Devices)
		all = append(all, statjson.ResidentRange{FirstRow: first, Rows: min(p.To*int64(l.Devices), l.Rows) - first, TargetBytes: p.Target})
	}
	if len(all) == 1 {
		return nil
	}
	return all
}

// resident says that the tables are.
func (r *Resident) resident() bool { return r.Slots != "" }

// target returns the length of a slot in bytes, 0 for a choice.
func (r *Resident) target() (int, error) {
	if r.Slots == "" || r.Slots == AutoSlots {
		return 0, nil
	}
	n, err := humanize.ParseBytes(r.Slots)
	if err != nil || n == 0 || n%buddy.MinTarget != 0 || n > slab.MaxRowBytes+1 {
		return 0, fmt.Errorf("--resident (%q) must be auto, or bytes: a multiple of %d up to %d", r.Slots, buddy.MinTarget, slab.MaxRowBytes+1)
	}
	return int(n), nil
}

// validateLayout reports what is wrong with how the tables lie.
func (c *Config) validateLayout(f *faults.List) {
	_, err := c.target()
	f.Add(err)
	c.validateResident(f)
	f.If(!c.resident() && (c.MaxOverflow != 0 || c.Buddy != ""), "--max-overflow and --buddy mean nothing without --resident")
	f.If(c.resident() && (c.Cold || c.Online.on()), "--resident and --cold, --drift, --refresh-batches or --refresh-interval contradict each other: all rows stay in device memory")
	f.If(c.resident() && c.ColdPages != "", "--resident and --cold (%s) contradict each other: pages are not made resident", c.ColdPages)
}

// validateResident reports faults of what a plan has, too.
func (c *Config) validateResident(f *faults.List) {
	f.If(!(c.MaxOverflow >= 0 && c.MaxOverflow <= 1), "--max-overflow (%v) must be 0 to 1", c.MaxOverflow)
	f.If(!slices.Contains([]string{"", string(cache.BuddyHost), string(cache.BuddyPeer), string(cache.BuddyAuto)}, c.Buddy),
		"--buddy (%q) must be %s, %s or %s", c.Buddy, cache.BuddyHost, cache.BuddyPeer, cache.BuddyAuto)
	f.If(c.Buddy == string(cache.BuddyPeer) && c.Devices < 2, "--buddy %s needs at least 2 devices: --devices or --gpus", c.Buddy)
}

// overflowLink returns how devices read overflow places.
func (c *Config) overflowLink() buddy.Link {
	if c.Buddy == string(cache.BuddyPeer) {
		return buddy.PeerLink()
	}
	return buddy.HostLink(c.link())
}

// lay returns a table of the run, resident if it is to be.
func (r *run) lay(t cache.Table) cache.Table {
	if !r.cfg.resident() || r.name != "" { // the uncompressed one beside it is a cache
		return t
	}
	target, _ := r.cfg.target()
	return t.ResidentWith(cache.ResidentOptions{Target: target, MaxOverflow: r.cfg.MaxOverflow, Buddy: cache.BuddyMemory(r.cfg.Buddy)})
}

// WholeTable, as the budget of resident tables, is what all rows take raw.
const WholeTable = "whole"

// wholeTable returns the bytes of a device that are enough for all rows of tables, raw and resident.
func wholeTable(tables []*dataset.Table, devices int) int64 {
	bytes := int64(64 << 10)
	for _, t := range tables {
		rows := (int64(t.Rows) + int64(devices) - 1) / int64(devices)
		bytes += rows*int64(buddy.MaxTarget(t.RowBytes)+buddy.WordBytes) + slab.TailSlack
	}
	return bytes
}

// residentBudget is budget for tables that may be resident, and take all of it.
func (c *Config) residentBudget(tables []*dataset.Table, raw int64) (int64, error) {
	if c.resident() && c.Budget == WholeTable {
		return min(wholeTable(tables, max(1, c.Devices)), math.MaxInt64/64), nil
	}
	return c.budget(raw)
}
