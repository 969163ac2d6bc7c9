//go:build cuda && linux

package transfer

/*
#include "share_help.h"

#cgo nocallback tensorcache_share_help
*/
import "C"

import (
	"unsafe"

	"github.com/tensorcache/tensorcache/internal/abi"
)

// The layout of shareWork is that of the C struct.
var (
	_ = [1]int{}[unsafe.Offsetof(shareWork{}.ready)-C.offsetof_ready]
	_ = [1]int{}[C.TENSORCACHE_SHARE_PIECES-abi.SharePieces]
)

// helpInC runs a worker's loop in C until the worker is to sleep or end, and returns true. One call serves all batches that follow each
// other closely. With one call for each piece, calls took longer than Go's scheduler expects, and it moved processors between threads.
func helpInC(w *shareWork, last *uint32) bool {
	C.tensorcache_share_help((*C.struct_tensorcache_share_work)(unsafe.Pointer(w)), (*C.uint32_t)(unsafe.Pointer(last)))
	return true
}
