package read

import (
	"cmp"
	"context"
	"errors"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// Prepare prepares a device for batches. It loads all kernels that they may need. Unless o.Threads is negative, it
// also lets host threads share the misses of tables where that can pay. REQUIRES: the device's views are set.
func (d *Device) Prepare(ctx context.Context, o transfer.ShareOptions) error {
	if err := d.shareMisses(o); err != nil {
		return err
	}
	s, err := d.Device.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	for i := range d.tables {
		t := d.Table(i)
		if err := cmp.Or(ctx.Err(), s.Launch(&kernels.Preload{Codec: t.Codec, Shared: t.Share != nil, Resident: t.Resident != nil, Partial: d.set.Tables[i].Absent != nil})); err != nil {
			return err
		}
	}
	return nil
}

func (d *Device) shareMisses(o transfer.ShareOptions) error {
	if o.Threads < 0 || !d.Device.NeedsStaging() { // a device in host memory gains nothing from sharing
		return nil
	}
	for i := range d.tables {
		t := d.Table(i)
		if d.set.Tables[i].Absent != nil || !o.Always && !transfer.Shareable(t.Rows) {
			continue
		}
		if d.Sharer == nil {
			s, err := transfer.NewSharer(d.Device, o)
			if errors.Is(err, transfer.ErrNoShare) || errors.Is(err, device.ErrOutOfMemory) {
				return nil // without a Sharer, the GPU fetches all misses itself
			}
			if err != nil {
				return err
			}
			d.Sharer = s
		}
		t.Share = d.Sharer.Table(t.Rows, t.Codec)
	}
	return nil
}
