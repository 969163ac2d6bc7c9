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
	"time"
	"unsafe"
)

// Module is loaded device code.
type Module struct {
	ctx    *Context
	handle C.uintptr_t
	jit    time.Duration
	log    string
}

// JITOptions are for the driver's PTX compiler. The zero value is its defaults.
type JITOptions struct {
	MaxRegisters int  // per thread; 0: no limit
	Level        *int // of optimization, 0..4; nil: 4
	LineInfo     bool // for profilers
	Verbose      bool // Log says what each kernel takes of registers and memory
}

const jitLogBytes = 8192

// LoadModule loads an image: PTX, which the driver compiles (or takes from its cache of compiled PTX), cubin or fat
// binary. An error for PTX carries the compiler's log.
func (c *Context) LoadModule(image []byte, o JITOptions) (*Module, error) {
	level := 4
	if o.Level != nil {
		level = *o.Level
	}
	text := make([]byte, len(image)+1) // PTX ends with a zero byte
	copy(text, image)
	info, fail := make([]byte, jitLogBytes), make([]byte, jitLogBytes)
	jit := C.struct_tensorcache_jit{
		max_registers:      C.uint32_t(o.MaxRegisters),
		optimization_level: C.uint32_t(level),
		info_bytes:         jitLogBytes,
		error_bytes:        jitLogBytes,
	}
	if o.LineInfo {
		jit.line_info = 1
	}
	if o.Verbose {
		jit.verbose = 1
	}
	m := &Module{ctx: c}
	r := C.tensorcache_module_load(c.handle, charPointer(text), &jit, charPointer(info), charPointer(fail), &m.handle)
	if r != 0 {
		return nil, &Error{Result: Result(r), Call: "cuModuleLoadDataEx", What: ofBytes(int64(len(image))),
			Device: c.device.ordinal, Log: logText(fail)}
	}
	m.jit = time.Duration(float64(jit.milliseconds) * float64(time.Millisecond))
	m.log = logText(info)
	return m, nil
}

// Unload unloads the module and ends its functions. A second Unload does nothing.
func (m *Module) Unload() error {
	if m.handle == 0 {
		return nil
	}
	h := m.handle
	m.handle = 0
	return m.ctx.check(C.tensorcache_module_unload(m.ctx.handle, h), "cuModuleUnload")
}

// JITTime returns the time that the PTX compiler says it took; 0 for a cached result.
func (m *Module) JITTime() time.Duration { return m.jit }

// Log returns what the PTX compiler had to say.
func (m *Module) Log() string { return m.log }

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
