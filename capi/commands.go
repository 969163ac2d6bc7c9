//go:build cgo

package main

// #include "bridge.h"
import "C"

import "errors"

//export tcgo_command_json
func tcgo_command_json(bench C.int32_t, config *C.char, to **C.char) (st status) {
	defer recovered(&st)
	return result(errors.New("not yet"))
}
