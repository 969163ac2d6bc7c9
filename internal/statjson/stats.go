// Package statjson is the JSON form of a cache's statistics and explanations: the same in the C library, over HTTP, over RESP and in
// `tensorcached status`. A field follows the field of the same name of the statistics of package cache. Functions are safe for concurrent use; values are not.
package statjson

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/slab"
)

// Table has the statistics of one table, or of all tables together.
type Table struct {
	Name             string           `json:"name,omitempty"`
	Number           int              `json:"number,omitempty"` // of a table of a service, which may have dropped others
	Codec            any              `json:"codec"`            // a name; of all tables a list
	DType            string           `json:"dtype,omitempty"`
	Rows             int64            `json:"rows"`
	RowBytes         int              `json:"row_bytes,omitempty"`
	CachedRows       int64            `json:"rows_cached"`
	RawRows          int64            `json:"rows_uncompressed"`
	EqualRows        int64            `json:"rows_equal"`
	SlotsSaved       int64            `json:"slots_saved"`
	RawBytes         int64            `json:"raw_bytes"`
	StoredBytes      int64            `json:"stored_bytes"`
	CompressionRatio float64          `json:"compression_ratio"`
	Gathers          int64            `json:"gathers"`
	Lookups          int64            `json:"lookups"`
	Hits             int64            `json:"hits"`
	PeerHits         int64            `json:"peer_hits"`
	Misses           int64            `json:"misses"`
	HitRatio         float64          `json:"hit_ratio"`
	MissesByReason   map[string]int64 `json:"misses_by_reason"`
	HostBytesMoved   int64            `json:"host_bytes_moved"`
	CodecReason      string           `json:"codec_reason,omitempty"`
	MissStrategy     []MissStrategy   `json:"miss_strategy,omitempty"` // of each device, if misses may be shared with the host's processors
	Tiers            *Tiers           `json:"tiers,omitempty"`         // of tables of pages
	Resident         *Resident        `json:"resident,omitempty"`      // of resident tables
}

// MissStrategy says how a device reads a table's misses: see cache.MissStrategy.
type MissStrategy struct {
	Strategy    string  `json:"strategy"`
	Fraction    float64 `json:"host_fraction"`
	Shared      int64   `json:"shared_batches"`
	Alone       int64   `json:"unshared_batches"`
	GaveUp      int64   `json:"timed_out"`
	SharedNanos float64 `json:"shared_ns"`
	AloneNanos  float64 `json:"unshared_ns"`
}

// Stats has the statistics of a cache. The embedded Table is the sum of all tables.
type Stats struct {
	Table
	BudgetBytes      int64             `json:"gpu_memory"`
	PayloadBytes     int64             `json:"payload_bytes"`
	ResidentBytes    int64             `json:"resident_bytes,omitempty"` // slots and words of resident tables
	MetadataBytes    int64             `json:"metadata_bytes"`
	FreeBytes        int64             `json:"free_bytes"`
	UnallocatedBytes int64             `json:"unallocated_bytes"` // of gpu_memory, because all rows fit in less
	CodecBytes       int64             `json:"codec_bytes"`
	IndexBytes       int64             `json:"index_bytes"`
	ScratchBytes     int64             `json:"scratch_bytes"`
	StagingBytes     int64             `json:"staging_bytes"`
	HostBytes        int64             `json:"host_bytes"`
	HostTakenBytes   int64             `json:"host_taken_bytes"` // of all that the cache takes there
	LoadPeakBytes    int64             `json:"load_peak_bytes"`
	OverlayBytes     int64             `json:"overlay_bytes"`
	Refresh          Refresh           `json:"refresh"`
	Updates          Updates           `json:"updates"`
	RestoredRows     int64             `json:"restored_rows"`
	Errors           map[string]string `json:"errors"` // what went wrong in the background, by "policy", "refresh", "change", "restore", "owner", and of tensorcached "telemetry"
	Tables           []Table           `json:"tables"`
	Devices          []Device          `json:"devices"`
	// Estimate has the estimated hit ratios at other budgets. It is nil if no keys are sampled, or none of them has been looked up.
	Estimate *Estimate `json:"estimate,omitempty"`
	// Machine has what all processes have counted, if the cache is attached: the counters beside it are of this process. It is nil otherwise.
	Machine *Stats `json:"machine,omitempty"`
}

// ResidentRange is rows of a resident table that have one target.
type ResidentRange struct {
	FirstRow    int64 `json:"first_row"`
	Rows        int64 `json:"rows"`
	TargetBytes int   `json:"target_bytes"`
}

// RangesOf returns the ranges of a resident table.
func RangesOf(all []cache.ResidentRange) (list []ResidentRange) {
	for _, r := range all {
		list = append(list, ResidentRange(r))
	}
	return list
}

// Resident says how a resident table lies, and what batches read beyond its slots: cache.ResidentStats.
type Resident struct {
	TargetBytes int `json:"target_bytes"`
	// Ranges are there if the table has several targets, of which TargetBytes is the mean.
	Ranges            []ResidentRange `json:"ranges,omitempty"`
	OverflowRows      int64           `json:"overflow_rows"`
	OverflowBytes     int64           `json:"overflow_bytes"`
	MaxTargetBytes    int             `json:"max_target_bytes"`
	PastMaxOverflow   bool            `json:"past_max_overflow"`
	DeviceBytes       int64           `json:"device_bytes"`
	BuddyBytes        int64           `json:"buddy_bytes"`
	PeerBytes         int64           `json:"peer_bytes"` // of BuddyBytes: on devices
	OverflowReads     int64           `json:"overflow_reads"`
	OverflowBytesRead int64           `json:"overflow_bytes_read"`
}

// Refresh counts what refresh cycles did.
type Refresh struct {
	Cycles          int64 `json:"cycles"`
	AdmittedRows    int64 `json:"admitted_rows"`
	EvictedRows     int64 `json:"evicted_rows"`
	MovedRows       int64 `json:"moved_rows"`
	RefreshedBytes  int64 `json:"written_bytes"`
	SampledAccesses int64 `json:"samples"`
	LostAccesses    int64 `json:"samples_dropped"`
}

// Updates counts rows that were changed.
type Updates struct {
	UpdatedRows      int64 `json:"rows"`
	UpdateWaits      int64 `json:"waits"`
	InvalidatedRows  int64 `json:"invalidated_rows"`
	HostBytesWritten int64 `json:"host_bytes_written"`
}

// Device has the statistics of one device.
type Device struct {
	Backend          string  `json:"backend"`
	Index            int     `json:"index"`
	Name             string  `json:"name"`
	BudgetBytes      int64   `json:"gpu_memory"`
	PayloadBytes     int64   `json:"payload_bytes"`
	FreeBytes        int64   `json:"free_bytes"`
	UnallocatedBytes int64   `json:"unallocated_bytes"`
	Gathers          int64   `json:"gathers"`
	Lookups          int64   `json:"lookups"`
	LocalHits        int64   `json:"local_hits"`
	PeerHits         int64   `json:"peer_hits"`
	Misses           int64   `json:"misses"`
	Load             float64 `json:"load"`
	Error            string  `json:"error,omitempty"`
}

// Estimate is cache.Estimate.
type Estimate struct {
	Accesses int64    `json:"accesses"` // lookups that the estimate stands for
	Keys     int      `json:"keys"`     // keys that are tracked
	Budgets  []Budget `json:"budgets"`
}

// Budget is the estimated hit ratio, 0 to 1, at Times the budget.
type Budget struct {
	Times    float64 `json:"times"`
	HitRatio float64 `json:"hit_ratio"`
}

// Of returns the statistics of a cache as of now.
func Of(c *cache.Cache) (*Stats, error) {
	all, err := c.Stats()
	if err != nil {
		return nil, err
	}
	return of(c, &all), nil
}

func of(c *cache.Cache, all *cache.Stats) *Stats {
	r := &Stats{Errors: map[string]string{}}
	set(r, all)
	set(&r.Refresh, &all.Changes)
	set(&r.Updates, &all.Changes)
	for what, text := range map[string]string{
		"policy": all.PolicyError, "refresh": all.RefreshError, "change": all.ChangeError, "restore": all.RestoreError, "owner": all.OwnerError,
	} {
		if text != "" {
			r.Errors[what] = text
		}
	}
	r.addTables(all.Tables)
	for i := range all.Devices {
		info := c.DeviceInfo(i)
		d := Device{Backend: info.Kind, Index: info.Index, Name: info.Name}
		set(&d, &all.Devices[i])
		r.Devices = append(r.Devices, d)
	}
	if e := all.Estimate; e != nil {
		r.Estimate = &Estimate{Accesses: e.Accesses, Keys: e.Keys}
		for _, b := range e.Budgets {
			r.Estimate.Budgets = append(r.Estimate.Budgets, Budget{b.Times, b.HitRate})
		}
	}
	if all.Machine != nil {
		r.Machine = of(c, all.Machine)
	}
	return r
}

// set sets the fields of to that have the name and type of a field of from. Both are pointers to structs.
func set(to, from any) {
	t, f := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for i := range t.NumField() {
		if v := f.FieldByName(t.Type().Field(i).Name); v.IsValid() && v.Type() == t.Field(i).Type() {
			t.Field(i).Set(v)
		}
	}
}

// addTables sets the statistics of the tables and their sum: of all fields that are an int64.
func (s *Stats) addTables(tables []cache.TableStats) {
	codecs := []string{}
	s.MissesByReason = map[string]int64{}
	for i := range tables {
		t := ofTable(&tables[i])
		s.Tables = append(s.Tables, t)
		codecs = append(codecs, tables[i].Codec)
		add(&s.Table, &t)
		for reason, n := range t.MissesByReason {
			s.MissesByReason[reason] += n
		}
	}
	s.Codec = codecs
	s.ratios()
}

func ofTable(t *cache.TableStats) Table {
	s := Table{Codec: t.Codec, DType: t.DType.String(), MissesByReason: map[string]int64{}}
	set(&s, t)
	for r, n := range t.MissesByReason {
		s.MissesByReason[slab.Reason(r).String()] = n
	}
	if t.Tiers.Paged {
		s.Tiers = TiersOf(&t.Tiers)
	}
	if r := t.Resident; r != nil {
		s.Resident = &Resident{Ranges: RangesOf(r.Ranges)}
		set(s.Resident, r)
	}
	if t.Choice != nil {
		s.CodecReason = t.Choice.Reason
	}
	if slices.ContainsFunc(t.MissStrategy, func(m cache.MissStrategy) bool { return m.Tried() }) {
		for _, m := range t.MissStrategy {
			s.MissStrategy = append(s.MissStrategy, MissStrategy(m))
		}
	}
	s.ratios()
	return s
}

// Merge returns the statistics of several caches of one service as those of one cache: of the tables that they list, by number, and of each device once.
func Merge(all []*Stats) *Stats {
	r := &Stats{Errors: map[string]string{}}
	r.MissesByReason = map[string]int64{}
	codecs := []string{}
	for i, s := range all {
		for j := range s.Tables {
			t := &s.Tables[j]
			add(&r.Table, t)
			r.Tables, codecs = append(r.Tables, *t), append(codecs, t.Codec.(string))
			for reason, n := range t.MissesByReason {
				r.MissesByReason[reason] += n
			}
		}
		peak := max(r.LoadPeakBytes, s.LoadPeakBytes)
		add(r, s)
		add(&r.Refresh, &s.Refresh)
		add(&r.Updates, &s.Updates)
		r.LoadPeakBytes = peak
		for what, text := range s.Errors {
			if i > 0 && len(s.Tables) > 0 {
				what = s.Tables[0].Name + ": " + what
			}
			r.Errors[what] = text
		}
		for _, d := range s.Devices {
			at := slices.IndexFunc(r.Devices, func(o Device) bool { return o.Backend == d.Backend && o.Index == d.Index })
			if at < 0 {
				r.Devices = append(r.Devices, d)
				continue
			}
			one := &r.Devices[at]
			add(one, &d)
			one.Error = cmp.Or(one.Error, d.Error)
		}
		r.addEstimate(s.Estimate)
	}
	slices.SortFunc(r.Tables, func(a, b Table) int { return cmp.Compare(a.Number, b.Number) })
	r.Codec = codecs
	r.ratios()
	return r
}

// add adds the fields of from that are an int64 to those of to. Both are pointers to structs of one type.
func add(to, from any) {
	sum := reflect.ValueOf(to).Elem()
	for f, n := range reflect.ValueOf(from).Elem().Fields() {
		if n.Kind() == reflect.Int64 {
			one := sum.FieldByIndex(f.Index)
			one.SetInt(one.Int() + n.Int())
		}
	}
}

// addEstimate takes in what a further cache estimates, weighted by accesses.
func (s *Stats) addEstimate(e *Estimate) {
	if e == nil {
		return
	}
	if s.Estimate == nil {
		one := *e
		one.Budgets = slices.Clone(e.Budgets)
		s.Estimate = &one
		return
	}
	sum := float64(max(1, s.Estimate.Accesses+e.Accesses))
	for i := range min(len(s.Estimate.Budgets), len(e.Budgets)) {
		b := &s.Estimate.Budgets[i]
		b.HitRatio = (b.HitRatio*float64(s.Estimate.Accesses) + e.Budgets[i].HitRatio*float64(e.Accesses)) / sum
	}
	s.Estimate.Accesses += e.Accesses
	s.Estimate.Keys += e.Keys
}

// ratios sets what follows from the other fields.
func (t *Table) ratios() {
	t.CompressionRatio = 1
	if t.StoredBytes > 0 {
		t.CompressionRatio = float64(t.RawBytes) / float64(t.StoredBytes)
	}
	if t.Lookups > 0 {
		t.HitRatio = float64(t.Hits) / float64(t.Lookups)
	}
}
