//go:build cuda && linux

package transfer

// #include "gather_rows.h"
import "C"

import "unsafe"

// gatherPieces gathers up to so many pieces; false says that there were fewer. It is gather's loop in C: a worker's thread then
// stays out of Go's scheduler for the whole of a share.
func (s *Sharer) gatherPieces(limit int) bool {
	if s.stall != nil {
		for ; limit > 0 && s.gather(); limit-- {
		}
		return limit == 0
	}
	j, h := &s.job, s.host
	// Addresses, not pointers: the memory is page-locked, or the host backend's, and the Sharer keeps it alive.
	job := C.struct_tensorcache_share{
		opened: addr(&h.Opened), closed: addr(&h.Closed), low: addr(&h.Low), claimed: addr(&h.Claimed), listed: addr(&h.Listed[0]),
		ready: addr(&s.ready[0]), halt: addr(&s.halt), list: addr(unsafe.SliceData(j.terms.ListView())),
		mem: addr(unsafe.SliceData(j.mem)), bytes: C.size_t(len(j.mem)), staging: addr(unsafe.SliceData(s.staging.Bytes())),
		slot: C.size_t(j.terms.Slot), number: C.uint32_t(j.number), pieces: C.uint32_t(j.pieces), piece: C.uint32_t(j.terms.Piece),
		unit: C.uint32_t(j.terms.Unit),
	}
	return C.tensorcache_share_gather(&job, C.uint32_t(limit)) == C.uint32_t(limit)
}

func addr[T any](p *T) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(p))) }

// gatherRows copies the first slot bytes of each row that begins at one of the offsets in mem to dst, back to back. Rows are
// prefetched, and dst is written past the caches: a copy row by row waits for each row's memory in turn.
func gatherRows(dst []byte, slot int, mem []byte, offsets []uint64) {
	_ = dst[:len(offsets)*slot]
	C.tensorcache_gather_rows(unsafe.Pointer(unsafe.SliceData(dst)), C.size_t(slot), unsafe.Pointer(unsafe.SliceData(mem)),
		C.size_t(len(mem)), (*C.uint64_t)(unsafe.SliceData(offsets)), C.size_t(len(offsets)))
}
