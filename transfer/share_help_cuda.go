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

// What C knows of shareWork is where it has it.
var (
	_ = [1]int{}[unsafe.Offsetof(shareWork{}.ready)-C.offsetof_ready]
	_ = [1]int{}[C.TENSORCACHE_SHARE_PIECES-abi.SharePieces]
)

// helpInC does what a worker does while it is to look for work, if there is C. One call does so for as many batches as come in a
// row: calls that take longer than Go's scheduler expects, a piece each, had it hand processors to and fro.
func helpInC(w *shareWork, last *uint32) bool {
	C.tensorcache_share_help((*C.struct_tensorcache_share_work)(unsafe.Pointer(w)), (*C.uint32_t)(unsafe.Pointer(last)))
	return true
}
