//go:build cuda && linux

package gpu

import (
	"errors"

	"github.com/tensorcache/tensorcache/device"
)

// link is the limits of the machine, in GB/s.
type link struct{ toDevice, toHost, both, copy float64 }

const linkBytes = 1 << 30

// limits measures the link and the device's memory, once.
func (r *runner) limits() (*link, error) {
	if r.link != nil {
		return r.link, nil
	}
	var host, mem [2]device.Buffer
	defer func() {
		for _, b := range append(host[:], mem[:]...) {
			r.d.Free(b)
		}
	}()
	var err error
	for i := range host {
		if host[i], err = r.d.AllocHost(linkBytes, "link"); err != nil {
			return nil, err
		}
		if mem[i], err = r.d.Alloc(linkBytes, "link"); err != nil {
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
		bytes   float64
		enqueue func(int) error
	}{
		{&l.toDevice, linkBytes, func(int) error { return r.stream.Copy(mem[0], host[0]) }},
		{&l.toHost, linkBytes, func(int) error { return r.stream.Copy(host[1], mem[1]) }},
		{&l.both, 2 * linkBytes, func(int) error {
			return errors.Join(
				r.stream.Record(fork), other.Wait(fork), other.Copy(host[1], mem[1]), other.Record(join),
				r.stream.Copy(mem[0], host[0]), r.stream.Wait(join),
			)
		}},
		{&l.copy, 2 * linkBytes, func(int) error { return r.stream.Copy(mem[1], mem[0]) }},
	} {
		seconds, err := r.time(c.enqueue)
		if err != nil {
			return nil, err
		}
		*c.value = c.bytes / 1e9 / seconds
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
	if r.has("link") {
		for _, x := range []struct {
			what  string
			value float64
		}{{"to device", l.toDevice}, {"to host", l.toHost}, {"both ways", l.both}} {
			r.add(Result{Case: "link", Codec: x.what, TableBytes: linkBytes, Batch: 1, Value: x.value, Unit: "GB/s", Detail: "page-locked copy of 1 GiB"})
		}
	}
	if r.has("device-copy") {
		r.add(Result{Case: "device-copy", TableBytes: linkBytes, Batch: 1, Value: l.copy, Unit: "GB/s", Detail: "copy of 1 GiB, bytes read and written"})
	}
	return nil
}
