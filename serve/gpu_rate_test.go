//go:build linux

package serve_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/serve"
)

// rates has the rows per second of Enqueue for batches of hits, of half hits, and of misses.
type rates [3]float64

// kinds are what the batches of rates have.
var kinds = [len(rates{})]string{"hits", "half hits", "misses"}

// meter gathers batches of rows that hit and rows that miss on one of a cache's GPUs: all hit of a resident table, where the three kinds are the same.
type meter struct {
	view         cache.View
	device       device.Device
	ids, out     device.Buffer
	batch        int
	hits, misses []int64
	random       *rand.Rand
}

// newMeter returns a meter of a cache whose GPUs are the first ones, for batches of so many of its rows.
func newMeter(c *cache.Cache, gpu, rows, batch int) (m *meter, err error) {
	devices, err := cuda.OpenGPUs([]int{gpu})
	if err != nil {
		return nil, err
	}
	m = &meter{view: c.On(gpu), device: devices[0], batch: batch, random: rand.New(rand.NewPCG(4, uint64(gpu)))}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.ids, err = m.device.Alloc(int64(batch)*8, "row numbers"); err != nil {
		return nil, err
	}
	if m.out, err = m.device.Alloc(int64(batch*c.RowBytes(0)), "output"); err != nil {
		return nil, err
	}
	all := make([]int64, rows)
	for i := range all {
		all[i] = int64(i)
	}
	in, err := c.Cached(0, all, make([]bool, 0, rows))
	if err != nil {
		return nil, err
	}
	for i, cached := range in {
		if cached {
			m.hits = append(m.hits, int64(i))
		} else {
			m.misses = append(m.misses, int64(i))
		}
	}
	return m, nil
}

func (m *meter) close() {
	m.device.Free(m.ids)
	m.device.Free(m.out)
	m.device.Close()
}

// load has the next batches be of a kind.
func (m *meter) load(kind int) error {
	numbers := make([]byte, m.batch*8)
	for i := range m.batch {
		from := m.hits
		if len(m.misses) > 0 && (kind == 2 || kind == 1 && i%2 == 0) {
			from = m.misses
		}
		binary.LittleEndian.PutUint64(numbers[8*i:], uint64(from[m.random.IntN(len(from))]))
	}
	return device.Upload(m.device, m.ids, numbers)
}

// queued is the most batches that a meter has under way.
const queued = 16

// rate returns the rows per second of at least so many batches, over at least so long.
func (m *meter) rate(batches int, lasts time.Duration) (float64, error) {
	var running [queued]*cache.Batch
	begun := time.Now()
	n := 0
	for ; n < batches || time.Since(begun) < lasts; n++ {
		slot := &running[n%queued]
		if *slot != nil {
			if err := (*slot).Wait(); err != nil {
				return 0, err
			}
		}
		var err error
		if *slot, err = m.view.Enqueue(context.Background(), 0, cache.Request{DeviceRows: m.ids, DeviceOut: m.out}); err != nil {
			return 0, err
		}
	}
	for i := range running {
		if b := running[(n+i)%queued]; b != nil {
			if err := b.Wait(); err != nil {
				return 0, err
			}
		}
	}
	return float64(m.batch*n) / time.Since(begun).Seconds(), nil
}

// measure returns the rates of all kinds of batches.
func (m *meter) measure(repeats int) (r rates, err error) {
	for kind := range r {
		if err := m.load(kind); err != nil {
			return r, err
		}
		if _, err := m.rate(3, 0); err != nil { // allocates, and the cache learns how many rows miss
			return r, err
		}
		if r[kind], err = m.rate(repeats, 0); err != nil {
			return r, err
		}
	}
	return r, nil
}

func init() {
	// measure ADDRESS GPU ROWS BATCH REPEATS: says for each line "all" of the test the rates of an attached cache on a GPU; for a line "kind K SECONDS" the
	// rate of one kind, as long as it lasts.
	roles["measure"] = func(p *parent, args []string) error {
		var gpu, rows, batch, repeats int
		for i, to := range []*int{&gpu, &rows, &batch, &repeats} {
			fmt.Sscan(args[1+i], to)
		}
		begun := time.Now()
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{})
		if err != nil {
			return err
		}
		p.tell(time.Since(begun).Seconds())
		m, err := newMeter(c, gpu, rows, batch)
		if err != nil {
			return err
		}
		for {
			line, ok := p.wait()
			if !ok {
				m.close()
				return c.Close()
			}
			var kind int
			var seconds float64
			if n, _ := fmt.Sscanf(line, "kind %d %g", &kind, &seconds); n == 2 {
				r, err := m.rateOf(kind, repeats, time.Duration(seconds*float64(time.Second)))
				if err != nil {
					return err
				}
				p.tell(r)
				continue
			}
			r, err := m.measure(repeats)
			if err != nil {
				return err
			}
			p.tell(r)
		}
	}
}

// rateOf is rate of batches of a kind. The first ones are not counted.
func (m *meter) rateOf(kind, batches int, lasts time.Duration) (float64, error) {
	if err := m.load(kind); err != nil {
		return 0, err
	}
	if _, err := m.rate(3, 0); err != nil {
		return 0, err
	}
	return m.rate(batches, lasts)
}

// rateTable returns a table of rows of 512 bytes that ibp4 compresses.
func rateTable(t *testing.T, rows int) cache.Table {
	const columns = 128 // float32
	values := make([]float32, rows*columns)
	r := rand.New(rand.NewPCG(1, 1))
	noise := make([]float32, 1<<16)
	for i := range noise {
		noise[i] = float32(r.NormFloat64())
	}
	for i := 0; i < len(values); i += columns {
		copy(values[i:i+columns], noise[r.IntN(len(noise)-columns):])
	}
	table, err := cache.FromSlice("rows", values, columns)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// rateRowBytes is the length of rateTable's rows.
const rateRowBytes = 512

// TestGPU_AttachedRate: a client gathers about as fast as the owner does. The two take turns.
func TestGPU_AttachedRate(t *testing.T) {
	gputest.Require(t)
	rows, batch, repeats := gputest.Few(2_000_000, 4000), gputest.Few(200_000, 1000), gputest.Few(100, 2)
	t.Run("cached", func(t *testing.T) {
		compareRates(t, rateTable(t, rows), int64(rows)*rateRowBytes/3, rows, batch, repeats)
	})
	t.Run("resident", func(t *testing.T) {
		compareRates(t, rateTable(t, rows).Resident(), int64(rows)*rateRowBytes*5/4, rows, batch, repeats)
	})
}

// leastRatio is the ratio of rates below which tests fail. The aims are higher; what runs beside the tests costs some hundredths.
const leastRatio = 0.9

// compareRates compares a client of a table with its owner.
func compareRates(t *testing.T, table cache.Table, budget int64, rows, batch, repeats int) {
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: budget, Codec: "ibp4", Shared: true, Devices: cache.DeviceOptions{Backend: cache.BackendCUDA}, Host: cache.HostOptions{NoEqualRows: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := listen(t, c, serve.Options{})
	client := start(t, "measure", s.Address(), "0", fmt.Sprint(rows), fmt.Sprint(batch), fmt.Sprint(repeats))
	var attached float64
	if err := json.Unmarshal([]byte(client.line()), &attached); err != nil {
		t.Fatal(err)
	}
	m, err := newMeter(c, 0, rows, batch)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	var owner, by rates
	for range 3 {
		one, err := m.measure(repeats)
		if err != nil {
			t.Fatal(err)
		}
		client.say("all")
		var other rates
		if err := json.Unmarshal([]byte(client.line()), &other); err != nil {
			t.Fatal(err)
		}
		for i := range one {
			owner[i], by[i] = max(owner[i], one[i]), max(by[i], other[i])
		}
	}
	t.Logf("attached in %.3f s, with loading of the kernels", attached)
	for i, what := range kinds {
		ratio := by[i] / owner[i]
		t.Logf("batches of %d rows of %d bytes, %s: owner %.1f M rows/s, client %.1f, ratio %.3f (the aim is 0.97)", batch, c.RowBytes(0), what, owner[i]/1e6, by[i]/1e6, ratio)
		if !testing.Short() && ratio < leastRatio {
			t.Errorf("%s: the client has %.3f of the owner's rate, want at least %.2f", what, ratio, leastRatio)
		}
	}
}
