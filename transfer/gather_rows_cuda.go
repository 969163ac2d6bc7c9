//go:build cuda && linux

package transfer

// #include "gather_rows.h"
import "C"

import "unsafe"

// gatherRows copies the slot bytes at each of the offsets in mem to dst, back to back. It prefetches rows and writes dst with
// non-temporal stores; a copy row by row would wait for the memory of each row.
func gatherRows(dst []byte, slot int, mem []byte, offsets []uint64) {
	_ = dst[:len(offsets)*slot]
	C.tensorcache_gather_rows(unsafe.Pointer(unsafe.SliceData(dst)), C.size_t(slot), unsafe.Pointer(unsafe.SliceData(mem)),
		C.size_t(len(mem)), (*C.uint64_t)(unsafe.SliceData(offsets)), C.size_t(len(offsets)))
}
