package kernels

import "github.com/tensorcache/tensorcache/device"

// Preload loads all kernels that batches and changes of a table can need, so that the first of them do not wait for the driver to compile
// and load modules: a module takes it up to half a second. Shared says that misses may be shared with the host, Partial that the host tier holds
// a part of the rows, and Resident that the table is resident.
type Preload struct {
	Codec                     Codec
	Shared, Partial, Resident bool
}

// Name implements device.Kernel.
func (k *Preload) Name() string { return "preload" }

// RunHost implements device.Kernel. The host has nothing to load.
func (k *Preload) RunHost(device.Workers) {}
