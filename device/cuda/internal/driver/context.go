//go:build cuda

package driver

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"gorgonia.org/cu"
)

// Context is a device's primary context, retained.
type Context struct {
	device   Device
	cu       cu.CUContext
	handle   C.uintptr_t
	released atomic.Bool
}

// Retain returns the device's primary context, which it creates if there is none. Each Retain needs one Release.
func (d Device) Retain() (*Context, error) {
	ctx, err := d.cu.RetainPrimaryCtx()
	if err != nil {
		return nil, failedCU(err, "cuDevicePrimaryCtxRetain", "", d.ordinal)
	}
	return &Context{device: d, cu: ctx, handle: cuHandle(&ctx)}, nil
}

// Release releases the context. The last Release in the process destroys it. A second Release of the same Context does nothing.
func (c *Context) Release() error {
	if c.released.Swap(true) {
		return nil
	}
	return failedCU(c.device.cu.ReleasePrimaryCtx(), "cuDevicePrimaryCtxRelease", "", c.device.ordinal)
}

// MemInfo returns the free and the total bytes of the device's memory.
func (c *Context) MemInfo() (free, total int64, err error) {
	err = c.do("cuMemGetInfo", "", func() (err error) {
		free, total, err = cu.MemInfo()
		return err
	})
	return free, total, err
}

// EnablePeer gives kernels and copies in c access to the memory of peer's device. It returns nil if they already have it.
func (c *Context) EnablePeer(peer *Context) error {
	what := fmt.Sprintf("to device %d", peer.device.ordinal)
	return c.do("cuCtxEnablePeerAccess", what, func() error {
		err := peer.cu.EnablePeerAccess(0)
		if err == cu.PeerAccessAlreadyEnabled {
			return nil
		}
		return err
	})
}

// do runs f, which makes one call of gorgonia.org/cu, while c is the current context of the thread.
func (c *Context) do(call, what string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.PushCurrentCtx(c.cu); err != nil {
		return failedCU(err, call, what, c.device.ordinal)
	}
	mode := C.tensorcache_relax()
	err := f()
	C.tensorcache_restore(mode)
	if _, pop := cu.PopCurrentCtx(); err == nil {
		err = pop
	}
	return failedCU(err, call, what, c.device.ordinal)
}

// check returns the error for a result of the shim, or nil. Without an error it allocates nothing.
func (c *Context) check(r C.int, call string) error {
	if r == 0 {
		return nil
	}
	return failed(r, call, "", c.device.ordinal)
}

// checkBytes is check for a call that was given a number of bytes.
func (c *Context) checkBytes(r C.int, call string, bytes int64) error {
	if r == 0 {
		return nil
	}
	return failed(r, call, ofBytes(bytes), c.device.ordinal)
}

func ofBytes(n int64) string { return fmt.Sprintf("of %d bytes", n) }
