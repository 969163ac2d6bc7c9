//go:build cuda && linux

package kernels

import (
	"errors"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/device/cuda"
)

// RunCUDA implements cuda.Kernel. Modules are loaded at the same time. It returns when all are.
func (k *Preload) RunCUDA(s *cuda.Stream) error {
	if k.Codec.Codec != nil && !Decodes(k.Codec.Form) {
		return nil // batches return an error
	}
	c, d := kernelsOf(k.Codec), s.Device()
	if k.Resident {
		return loadAll(d, append(loads(c.buddy), storeKernel.Load, scatterKernel.Load))
	}
	all := []func(*cuda.Device) error{
		lookupKernel.Load, orderCountKernel.Load, orderPlaceKernel.Load, storeKernel.Load, scatterKernel.Load, c.fetch.Load, c.fetchLong.Load,
	}
	all = slices.Concat(all, loads(c.decode), loads(c.find), loads(c.serve))
	if k.Shared {
		all = slices.Concat(all, loads(c.share), []func(*cuda.Device) error{shareOpenKernel.Load, c.shareLong.Load})
	}
	if k.Partial {
		all = append(all, absentListKernel.Load, absentWaitKernel.Load, absentEndKernel.Load)
	}
	return loadAll(d, all)
}

// loads returns what loads each of the functions.
func loads[K comparable, A any](functions map[K]*cuda.Function[A]) (all []func(*cuda.Device) error) {
	for _, f := range functions {
		all = append(all, f.Load)
	}
	return all
}

func loadAll(d *cuda.Device, all []func(*cuda.Device) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, load := range all {
		wg.Go(func() { errs[i] = load(d) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
