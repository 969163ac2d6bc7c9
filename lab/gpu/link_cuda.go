//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/device"
)

// link is the limits of the machine, in GB/s.
type link struct{ toDevice, toHost, both, copy float64 }

// linkBytes is what is copied. It is smaller for the tiny tables of tests.
func (r *runner) linkBytes() int64 { return min(1<<30, r.o.TableBytes) }

// limits measures the link and the device's memory, once.
func (r *runner) limits() *link {
	if r.link != nil {
		return r.link
	}
	bytes := r.linkBytes()
	var host, mem [2]device.Buffer
	defer func() {
		for _, b := range append(host[:], mem[:]...) {
			r.d.Free(b)
		}
	}()
	for i := range host {
		host[i] = get(r.d.AllocHost(bytes, "link"))
		mem[i] = get(r.d.Alloc(bytes, "link"))
	}
	other := get(r.d.NewStream())
	defer other.Close()
	fork := get(r.d.NewEvent())
	defer fork.Close()
	join := get(r.d.NewEvent())
	defer join.Close()
	speed := func(bytes int64, enqueue func(int) error) float64 { return float64(bytes) / 1e9 / r.time(enqueue) }
	r.link = &link{
		toDevice: speed(bytes, func(int) error { return r.stream.Copy(mem[0], host[0]) }),
		toHost:   speed(bytes, func(int) error { return r.stream.Copy(host[1], mem[1]) }),
		both: speed(2*bytes, func(int) error {
			return errors.Join(
				r.stream.Record(fork), other.Wait(fork), other.Copy(host[1], mem[1]), other.Record(join),
				r.stream.Copy(mem[0], host[0]), r.stream.Wait(join),
			)
		}),
		copy: speed(2*bytes, func(int) error { return r.stream.Copy(mem[1], mem[0]) }),
	}
	return r.link
}

// reportLink reports the limits themselves.
func (r *runner) reportLink() {
	l := r.limits()
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
}
