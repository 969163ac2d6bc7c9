//go:build cuda

package driver

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"slices"
	"unsafe"
)

// Module is loaded device code.
type Module struct {
	ctx    *Context
	handle C.uintptr_t
}

const jitLogBytes = 8192

// LoadModule loads PTX, which the driver compiles or takes from its cache of compiled PTX. An error carries the compiler's log.
func (c *Context) LoadModule(ptx []byte) (*Module, error) {
	text, log := append(slices.Clip(ptx), 0), make([]byte, jitLogBytes)
	jit := C.struct_tensorcache_jit{optimization_level: 4, error_bytes: jitLogBytes}
	m := &Module{ctx: c}
	if r := C.tensorcache_module_load(c.handle, charPointer(text), &jit, nil, charPointer(log), &m.handle); r != 0 {
		return nil, &Error{Result: Result(r), Call: "cuModuleLoadDataEx", What: ofBytes(int64(len(ptx))),
			Device: c.device.ordinal, Log: logText(log)}
	}
	return m, nil
}

// Unload unloads the module. Its functions must not be used any more. A second Unload does nothing.
func (m *Module) Unload() error {
	if m.handle == 0 {
		return nil
	}
	h := m.handle
	m.handle = 0
	return m.ctx.check(C.tensorcache_module_unload(m.ctx.handle, h), "cuModuleUnload")
}

// Function returns a kernel by name.
func (m *Module) Function(name string) (*Function, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	f := &Function{ctx: m.ctx, name: name}
	if r := C.tensorcache_module_function(m.ctx.handle, m.handle, text, &f.handle); r != 0 {
		return nil, failed(r, "cuModuleGetFunction", fmt.Sprintf("%q", name), m.ctx.device.ordinal)
	}
	return f, nil
}

func charPointer(b []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))) }

// logText returns a zero-terminated log on one line.
func logText(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(bytes.ReplaceAll(bytes.TrimSpace(b), []byte("\n"), []byte("; ")))
}
