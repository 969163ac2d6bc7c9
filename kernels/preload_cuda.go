//go:build cuda && linux

package kernels

import (
	"errors"
	"sync"

	"github.com/tensorcache/tensorcache/device/cuda"
)

// RunCUDA implements cuda.Kernel. Modules are loaded at the same time. It returns when all are.
func (k *Preload) RunCUDA(s *cuda.Stream) error {
	if k.Codec.Codec != nil && !Decodes(k.Codec.Form) {
		return nil // batches return an error
	}
	c, d := kernelsOf(k.Codec), s.Device()
	all := []func(*cuda.Device) error{
		lookupKernel.Load, orderCountKernel.Load, orderPlaceKernel.Load, storeKernel.Load, scatterKernel.Load, c.fetch.Load, c.fetchLong.Load,
	}
	for _, f := range c.decode {
		all = append(all, f.Load)
	}
	for _, f := range c.find {
		all = append(all, f.Load)
	}
	for _, f := range c.serve {
		all = append(all, f.Load)
	}
	if k.Shared {
		all = append(all, shareOpenKernel.Load, c.shareLong.Load)
		for _, f := range c.share {
			all = append(all, f.Load)
		}
	}
	if k.Partial {
		all = append(all, absentListKernel.Load, absentWaitKernel.Load, absentEndKernel.Load)
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, load := range all {
		wg.Go(func() { errs[i] = load(d) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
