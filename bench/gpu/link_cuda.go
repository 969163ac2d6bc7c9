//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/device"
)

// link is the limits of the machine, in GB/s.
type link struct{ toDevice, toHost, both, copy float64 }

// linkBytes is what is copied, but for tiny tables, which are for tests.
func (r *runner) linkBytes() int64 { return min(1<<30, r.o.TableBytes) }

// limits measures the link and the device's memory, once.
func (r *runner) limits() (*link, error) {
	if r.link != nil {
		return r.link, nil
	}
	bytes := r.linkBytes()
	var host, mem [2]device.Buffer
	defer func() {
		for _, b := range append(host[:], mem[:]...) {
			r.d.Free(b)
		}
	}()
	var err error
	for i := range host {
		if host[i], err = r.d.AllocHost(bytes, "link"); err != nil {
			return nil, err
		}
		if mem[i], err = r.d.Alloc(bytes, "link"); err != nil {
			return nil, err
		}
	}
	other, err := r.d.NewStream()
	if err != nil {
		return nil, err
	}
	defer other.Close()
	var fork, join device.Event
	for _, e := range []*device.Event{&fork, &join} {
		if *e, err = r.d.NewEvent(); err != nil {
			return nil, err
		}
		defer (*e).Close()
	}
	l := &link{}
	for _, c := range []struct {
		value   *float64
		bytes   int64
		enqueue func(int) error
	}{
		{&l.toDevice, bytes, func(int) error { return r.stream.Copy(mem[0], host[0]) }},
		{&l.toHost, bytes, func(int) error { return r.stream.Copy(host[1], mem[1]) }},
		{&l.both, 2 * bytes, func(int) error {
			return errors.Join(
				r.stream.Record(fork), other.Wait(fork), other.Copy(host[1], mem[1]), other.Record(join),
				r.stream.Copy(mem[0], host[0]), r.stream.Wait(join),
			)
		}},
		{&l.copy, 2 * bytes, func(int) error { return r.stream.Copy(mem[1], mem[0]) }},
	} {
		seconds, err := r.time(c.enqueue)
		if err != nil {
			return nil, err
		}
		*c.value = float64(c.bytes) / 1e9 / seconds
	}
	r.link = l
	return l, nil
}

// reportLink reports the limits themselves.
func (r *runner) reportLink() error {
	l, err := r.limits()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("copy of %g GiB", float64(r.linkBytes())/(1<<30))
	if r.has("link") {
		for _, x := range []struct {
			what  string
			value float64
		}{{"to device", l.toDevice}, {"to host", l.toHost}, {"both ways", l.both}} {
			r.add(Result{Case: "link", Codec: x.what, TableBytes: r.linkBytes(), Batch: 1, Value: x.value, Unit: "GB/s", Detail: "page-locked " + what})
		}
	}
	if r.has("device-copy") {
		r.add(Result{Case: "device-copy", TableBytes: r.linkBytes(), Batch: 1, Value: l.copy, Unit: "GB/s", Detail: what + ", bytes read and written"})
	}
	return nil
}
