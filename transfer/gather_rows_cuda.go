//go:build cuda && linux

package transfer

// #include "gather_rows.h"
import "C"

import "unsafe"

// gatherRows copies the first slot bytes of each row that begins at one of the offsets in mem to dst, back to back. Rows are
// prefetched, and dst is written past the caches: a copy row by row waits for each row's memory in turn.
func gatherRows(dst []byte, slot int, mem []byte, offsets []uint64) {
	_ = dst[:len(offsets)*slot]
	C.tensorcache_gather_rows(unsafe.Pointer(unsafe.SliceData(dst)), C.size_t(slot), unsafe.Pointer(unsafe.SliceData(mem)),
		C.size_t(len(mem)), (*C.uint64_t)(unsafe.SliceData(offsets)), C.size_t(len(offsets)))
}
