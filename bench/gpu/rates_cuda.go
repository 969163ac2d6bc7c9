//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// MeasureRates measures what Gathers take, by the host's clock, of a cache over the GPUs, whose table is of N(0,1) float32 rows: all
// GPUs run at once, and the slowest one counts. Devices and Pairs are plain reads of uncompressed rows: of each GPU's own memory, of
// page-locked memory in order, and, one pair after the other, of each other's memory.
func MeasureRates(o RateOptions) (m placement.Measured, err error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return m, err
	}
	if len(o.GPUs) == 0 {
		for i := range min(cuda.Count(), 8) {
			o.GPUs = append(o.GPUs, i)
		}
	}
	devices, err := cuda.OpenGPUs(o.GPUs)
	if err != nil {
		return m, err
	}
	m.RowBytes, m.Batch, m.Source = o.RowBytes, o.Batch, fmt.Sprintf("%d × %s", len(devices), devices[0].Info().Name)
	var all []*reader
	defer func() {
		for _, r := range all {
			r.close()
		}
		for _, d := range devices {
			err = errors.Join(err, d.Close())
		}
	}()
	for _, d := range devices {
		r, err := newReader(d.(*cuda.Device), o)
		if err != nil {
			return m, err
		}
		all = append(all, r)
	}
	gbps := func(seconds float64) float64 { return float64(o.Batch*o.RowBytes) / 1e9 / seconds }
	// together times all devices at once, each reading its own of what, and returns the GB/s of each.
	together := func(what func(r *reader) device.Buffer, sorted bool) (rates []float64, err error) {
		for _, r := range all {
			if err := r.enqueue(what(r), sorted, o); err != nil {
				return nil, err
			}
		}
		for _, r := range all {
			seconds, err := r.wait()
			if err != nil {
				return nil, err
			}
			rates = append(rates, gbps(seconds))
		}
		return rates, nil
	}
	locals, err := together(func(r *reader) device.Buffer { return r.mem }, false)
	if err != nil {
		return m, err
	}
	hosts, err := together(func(r *reader) device.Buffer { return r.host }, true)
	if err != nil {
		return m, err
	}
	for i, r := range all {
		m.Devices = append(m.Devices, placement.DeviceRates{Index: r.d.Info().Index, Local: locals[i], Host: hosts[i]})
	}
	for _, r := range all {
		for _, of := range all {
			if r == of || !r.d.CanRead(of.d) {
				continue
			}
			err := r.enqueue(of.mem, false, o)
			if err != nil {
				return m, err
			}
			seconds, err := r.wait()
			if err != nil {
				return m, err
			}
			m.Pairs = append(m.Pairs, placement.PairRate{From: r.d.Info().Index, To: of.d.Info().Index, Rate: gbps(seconds)})
		}
	}
	m.Rates, err = gatherRates(o, all)
	return m, errors.Join(err, m.Validate())
}

// reader is a device that reads rows.
type reader struct {
	d              *cuda.Device
	stream         device.Stream
	timers         []device.Timer // around each run
	mem, host, out device.Buffer
	rows, inOrder  device.Buffer
	gathers        []kernels.Gather
	buffers        []device.Buffer
}

func newReader(d *cuda.Device, o RateOptions) (r *reader, err error) {
	r = &reader{d: d}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.stream, err = d.NewStream(); err != nil {
		return r, err
	}
	rows := randomRows(o.Batch, 0, o.TableBytes/int64(o.RowBytes), uint64(d.Info().Index))
	for _, b := range []struct {
		to    *device.Buffer
		alloc func(int64, string) (device.Buffer, error)
		bytes int64
	}{
		{&r.mem, d.Alloc, o.TableBytes}, {&r.host, d.AllocHost, o.TableBytes}, {&r.out, d.Alloc, int64(o.Batch * o.RowBytes)},
		{&r.rows, d.Alloc, int64(o.Batch * 8)}, {&r.inOrder, d.Alloc, int64(o.Batch * 8)},
	} {
		if *b.to, err = b.alloc(b.bytes, "rates"); err != nil {
			return r, err
		}
		r.buffers = append(r.buffers, *b.to)
	}
	if err := device.Upload(d, r.rows, asBytes(rows)); err != nil {
		return r, err
	}
	slices.Sort(rows)
	if err := device.Upload(d, r.inOrder, asBytes(rows)); err != nil {
		return r, err
	}
	for range o.Runs + 1 {
		t, err := d.NewTimer()
		if err != nil {
			return r, err
		}
		r.timers = append(r.timers, t)
	}
	return r, nil
}

// enqueue enqueues runs that read rows of mem, after some that are not timed.
func (r *reader) enqueue(mem device.Buffer, sorted bool, o RateOptions) error {
	rows := r.rows
	if sorted {
		rows = r.inOrder
	}
	r.gathers = []kernels.Gather{{
		Mem: mem, Rows: rows.Slice(0, int64(o.Batch*8)), Out: r.out.Slice(0, int64(o.Batch*o.RowBytes)), RowBytes: o.RowBytes,
	}}
	for range warmups {
		if err := r.stream.Launch(&r.gathers[0]); err != nil {
			return err
		}
	}
	for _, t := range r.timers[:len(r.timers)-1] {
		if err := errors.Join(r.stream.Record(t), r.stream.Launch(&r.gathers[0])); err != nil {
			return err
		}
	}
	return r.stream.Record(r.timers[len(r.timers)-1])
}

// wait returns the median seconds of the runs enqueued.
func (r *reader) wait() (float64, error) {
	if err := r.stream.Synchronize(); err != nil {
		return 0, err
	}
	var times []float64
	for i := range len(r.timers) - 1 {
		d, err := r.timers[i+1].Since(r.timers[i])
		if err != nil {
			return 0, err
		}
		times = append(times, d.Seconds())
	}
	return max(median(times), 1e-9), nil
}

func (r *reader) close() {
	for _, t := range r.timers {
		t.Close()
	}
	for _, b := range r.buffers {
		r.d.Free(b)
	}
	if r.stream != nil {
		r.stream.Close()
	}
}
