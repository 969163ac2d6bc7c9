//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/slab"
)

//export tcgo_gpu_count
func tcgo_gpu_count(count *C.int32_t) (st status) {
	defer recovered(&st)
	*count = 0
	if err := cuda.Usable(); err != nil {
		return result(failure{C.TC_ERROR_DEVICE, err})
	}
	*count = C.int32_t(cuda.Count())
	return C.TC_OK
}

// setText writes a text to a field of a structure, cut to its length.
func setText(to []C.char, text string) {
	n := copy(unsafe.Slice((*byte)(unsafe.Pointer(&to[0])), len(to)-1), text)
	to[n] = 0
}

//export tcgo_table_info
func tcgo_table_info(h C.uintptr_t, table C.int32_t, info *C.tc_table_info) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	r, err := s.check(-1, table, C.TC_INT64, 0, 0, true, true)
	if err != nil {
		return result(err)
	}
	t := &s.tables[r.table]
	info.rows, info.capacity, info.row_bytes = C.int64_t(s.cache.Rows(r.table)), C.int64_t(t.capacity), C.int64_t(r.row)
	info.columns, info.dtype = C.int64_t(t.columns), s.elements[r.table]
	setText(info.name[:], t.name)
	setText(info.codec[:], t.codec)
	return C.TC_OK
}

//export tcgo_device_info
func tcgo_device_info(h C.uintptr_t, device C.int32_t, info *C.tc_device_info) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	if device < 0 || int(device) >= len(s.views) {
		return result(argument("device (%d) must be 0 to %d", device, len(s.views)-1))
	}
	i := s.cache.DeviceInfo(int(device))
	info.backend, info.gpu = C.TC_BACKEND_CUDA, C.int32_t(i.Index)
	if s.onHost {
		info.backend = C.TC_BACKEND_HOST
	}
	setText(info.name[:], i.Name)
	return C.TC_OK
}

// tableStats are the statistics of one table, or of all together.
type tableStats struct {
	Name             string           `json:"name,omitempty"`
	Codec            any              `json:"codec"` // a name; of all tables a list
	DType            string           `json:"dtype,omitempty"`
	Rows             int64            `json:"rows"`
	RowBytes         int              `json:"row_bytes,omitempty"`
	RowsCached       int64            `json:"rows_cached"`
	RawRows          int64            `json:"rows_uncompressed"`
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
}

// cacheStats are the statistics of a cache.
type cacheStats struct {
	tableStats
	GPUMemory     int64          `json:"gpu_memory"`
	PayloadBytes  int64          `json:"payload_bytes"`
	MetadataBytes int64          `json:"metadata_bytes"`
	FreeBytes     int64          `json:"free_bytes"`
	CodecBytes    int64          `json:"codec_bytes"`
	IndexBytes    int64          `json:"index_bytes"`
	ScratchBytes  int64          `json:"scratch_bytes"`
	StagingBytes  int64          `json:"staging_bytes"`
	HostBytes     int64          `json:"host_bytes"`
	LoadPeakBytes int64          `json:"load_peak_bytes"`
	OverlayBytes  int64          `json:"overlay_bytes"`
	Refresh       refreshStats   `json:"refresh"`
	Updates       updateStats    `json:"updates"`
	RestoredRows  int64          `json:"restored_rows"`
	Errors        map[string]any `json:"errors"` // what went wrong in the background, by "policy", "refresh", "change", "restore"
	Tables        []tableStats   `json:"tables"`
	Devices       []deviceStats  `json:"devices"`
}

type refreshStats struct {
	Cycles         int64 `json:"cycles"`
	AdmittedRows   int64 `json:"admitted_rows"`
	EvictedRows    int64 `json:"evicted_rows"`
	MovedRows      int64 `json:"moved_rows"`
	WrittenBytes   int64 `json:"written_bytes"`
	Samples        int64 `json:"samples"`
	SamplesDropped int64 `json:"samples_dropped"`
}

type updateStats struct {
	Rows             int64 `json:"rows"`
	Waits            int64 `json:"waits"`
	InvalidatedRows  int64 `json:"invalidated_rows"`
	HostBytesWritten int64 `json:"host_bytes_written"`
}

type deviceStats struct {
	Backend      string  `json:"backend"`
	Index        int     `json:"index"`
	Name         string  `json:"name"`
	GPUMemory    int64   `json:"gpu_memory"`
	PayloadBytes int64   `json:"payload_bytes"`
	FreeBytes    int64   `json:"free_bytes"`
	Gathers      int64   `json:"gathers"`
	Lookups      int64   `json:"lookups"`
	LocalHits    int64   `json:"local_hits"`
	PeerHits     int64   `json:"peer_hits"`
	Misses       int64   `json:"misses"`
	Load         float64 `json:"load"`
	Error        string  `json:"error,omitempty"`
}

func statsOfTable(t *cache.TableStats) tableStats {
	s := tableStats{
		Name: t.Name, Codec: t.Codec, DType: t.DType.String(), Rows: t.Rows, RowBytes: t.RowBytes, RowsCached: t.CachedRows, RawRows: t.RawRows,
		RawBytes: t.RawBytes, StoredBytes: t.StoredBytes, Gathers: t.Gathers, Lookups: t.Lookups, Hits: t.Hits, PeerHits: t.PeerHits, Misses: t.Misses,
		MissesByReason: map[string]int64{}, HostBytesMoved: t.HostBytesMoved,
	}
	for r, n := range t.MissesByReason {
		s.MissesByReason[slab.Reason(r).String()] = n
	}
	if t.Choice != nil {
		s.CodecReason = t.Choice.Reason
	}
	s.ratios()
	return s
}

// ratios sets what follows from the other fields.
func (s *tableStats) ratios() {
	s.CompressionRatio = 1
	if s.StoredBytes > 0 {
		s.CompressionRatio = float64(s.RawBytes) / float64(s.StoredBytes)
	}
	if s.Lookups > 0 {
		s.HitRatio = float64(s.Hits) / float64(s.Lookups)
	}
}

func (s *served) stats() (*cacheStats, error) {
	all, err := s.cache.Stats()
	if err != nil {
		return nil, err
	}
	c := all.Changes
	r := &cacheStats{
		GPUMemory: all.BudgetBytes, PayloadBytes: all.PayloadBytes, MetadataBytes: all.MetadataBytes, FreeBytes: all.FreeBytes,
		CodecBytes: all.CodecBytes, IndexBytes: all.IndexBytes, ScratchBytes: all.ScratchBytes, StagingBytes: all.StagingBytes + s.bounceBytes(),
		HostBytes: all.HostBytes, LoadPeakBytes: all.LoadPeakBytes, OverlayBytes: all.OverlayBytes, RestoredRows: all.RestoredRows,
		Refresh: refreshStats{
			Cycles: c.Cycles, AdmittedRows: c.AdmittedRows, EvictedRows: c.EvictedRows, MovedRows: c.MovedRows, WrittenBytes: c.RefreshedBytes,
			Samples: c.SampledAccesses, SamplesDropped: c.LostAccesses,
		},
		Updates: updateStats{Rows: c.UpdatedRows, Waits: c.UpdateWaits, InvalidatedRows: c.InvalidatedRows, HostBytesWritten: c.HostBytesWritten},
		Errors:  map[string]any{},
	}
	for what, text := range map[string]string{"policy": all.PolicyError, "refresh": all.RefreshError, "change": all.ChangeError, "restore": all.RestoreError} {
		if text != "" {
			r.Errors[what] = text
		}
	}
	codecs := []string{}
	r.MissesByReason = map[string]int64{}
	for i := range all.Tables {
		t := statsOfTable(&all.Tables[i])
		r.Tables = append(r.Tables, t)
		codecs = append(codecs, all.Tables[i].Codec)
		r.Rows += t.Rows
		r.RowsCached += t.RowsCached
		r.RawRows += t.RawRows
		r.RawBytes += t.RawBytes
		r.StoredBytes += t.StoredBytes
		r.Gathers += t.Gathers
		r.Lookups += t.Lookups
		r.Hits += t.Hits
		r.PeerHits += t.PeerHits
		r.Misses += t.Misses
		r.HostBytesMoved += t.HostBytesMoved
		for reason, n := range t.MissesByReason {
			r.MissesByReason[reason] += n
		}
	}
	r.Codec = codecs
	r.ratios()
	for i, d := range all.Devices {
		info := s.cache.DeviceInfo(i)
		r.Devices = append(r.Devices, deviceStats{
			Backend: info.Kind, Index: info.Index, Name: info.Name, GPUMemory: d.BudgetBytes, PayloadBytes: d.PayloadBytes, FreeBytes: d.FreeBytes,
			Gathers: d.Gathers, Lookups: d.Lookups, LocalHits: d.LocalHits, PeerHits: d.PeerHits, Misses: d.Misses, Load: d.Load, Error: d.Error,
		})
	}
	return r, nil
}

//export tcgo_stats_json
func tcgo_stats_json(h C.uintptr_t, table C.int32_t, to **C.char) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	if table != -1 {
		if _, err := s.check(-1, table, C.TC_INT64, 0, 0, true, true); err != nil {
			return result(err)
		}
	}
	all, err := s.stats()
	if err != nil {
		return result(err)
	}
	if table != -1 { // the table's numbers in front, with what is of the whole cache
		all.tableStats = all.Tables[table]
	}
	return giveJSON(all, to)
}

// explanation is an element of tc_explain_json's array.
type explanation struct {
	Row         int64         `json:"row"`
	Cached      bool          `json:"cached"`
	Overlay     bool          `json:"overlay,omitempty"` // on its way from an update to the host tier
	Device      *int          `json:"device,omitempty"`  // whose memory holds the row
	AgeSeconds  float64       `json:"age_s,omitempty"`   // since it was cached
	Reason      string        `json:"reason,omitempty"`  // why it is not cached
	Compressed  bool          `json:"compressed"`
	StoredBytes int           `json:"stored_bytes"`
	SlotBytes   int           `json:"slot_bytes"`
	Withdrawn   *withdrawal   `json:"withdrawn,omitempty"`
	Policy      *rowsEstimate `json:"policy,omitempty"`
}

type withdrawal struct {
	Time       float64 `json:"time"` // seconds since 1970
	AgeSeconds float64 `json:"age_s"`
	By         string  `json:"by"`
}

//export tcgo_explain_json
func tcgo_explain_json(h C.uintptr_t, table C.int32_t, ids unsafe.Pointer, idType C.int32_t, n C.int64_t, to **C.char) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	rows, r, err := s.rowsOf(table, ids, idType, n)
	if err != nil {
		return result(err)
	}
	found, err := s.cache.Explain(r.table, rows)
	if err != nil {
		return result(err)
	}
	all := make([]explanation, len(found))
	for i, f := range found {
		e := explanation{
			Row: f.Row, Cached: f.Cached, Overlay: f.Overlay, Compressed: f.Compressed, StoredBytes: f.StoredBytes, SlotBytes: f.SlotBytes,
			AgeSeconds: f.Age.Seconds(), Policy: estimateOf(f.Policy),
		}
		switch {
		case !f.Cached:
			e.Reason = f.Reason.String()
		case !f.Overlay:
			e.Device = &f.Device
		}
		if f.Eviction != nil {
			e.Withdrawn = &withdrawal{float64(f.Eviction.At.UnixNano()) / float64(time.Second), f.Eviction.Age.Seconds(), f.Eviction.By}
		}
		all[i] = e
	}
	return giveJSON(all, to)
}
