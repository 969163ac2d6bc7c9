package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
)

// keyed draws row numbers of several features one behind the other, and the offsets of all their bags, of which each feature has so many.
func keyed(r *rand.Rand, features, bags, tableRows int) (ids, offsets []int64) {
	offsets = []int64{0}
	for range features * bags {
		n := []int{0, 1, 3, 10, 40, 70}[r.IntN(6)]
		ids = append(ids, randomRows(r, n, tableRows)...)
		offsets = append(offsets, int64(len(ids)))
	}
	return ids, offsets
}

// ofFeature returns the row numbers and weights of a feature's bags, and a Pooling with offsets of their own.
func ofFeature(p pooling, ids, offsets []int64, feature, bags int) (pooling, []int64) {
	at := slices.Clone(offsets[feature*bags : (feature+1)*bags+1])
	first, last := at[0], at[bags]
	for i := range at {
		at[i] -= first
	}
	p.Offsets, p.LastOffset, p.FirstBag, p.Bags = at, true, 0, 0
	if len(p.Weights) > 0 {
		p.Weights = p.Weights[first:last]
	}
	return p, ids[first:last]
}

// TestGather_PooledChosenBags chooses bags of those that offsets describe, in Go memory and on a device, and refuses those that there are not.
func TestGather_PooledChosenBags(t *testing.T) {
	const tableRows, columns, features, bags = 200, 12, 4, 9
	data := floatTable(tableRows, columns, dtype.Float32, false, 3)
	c := newCache(t, cache.Options{Tables: []cache.Table{floatsOf(t, "x", dtype.Float32, data, columns)}, Budget: int64(len(data) / 3), Devices: cache.DeviceOptions{Backend: "host"}})
	r := rand.New(rand.NewPCG(1, 2))
	ids, offsets := keyed(r, features, bags, tableRows)
	whole := pooling{Pooling: cache.Pooling{Mode: cache.PoolSum, Offsets: offsets}}
	for range ids {
		whole.Weights = append(whole.Weights, float32(r.NormFloat64()))
	}
	for feature := range features {
		p := whole
		p.FirstBag, p.Bags = feature*bags, bags
		own, rows := ofFeature(p, ids, offsets, feature, bags)
		out := make([]byte, bags*columns*4)
		if err := c.Gather(ctx, p.host(0, ids, out)); err != nil {
			t.Fatal(err)
		}
		checkPooled(t, data, dtype.Float32, columns, rows, &own, out, "in Go memory")
		clear(out)
		q := p
		q.Offsets, q.Weights, q.DeviceOffsets, q.DeviceWeights = nil, nil, bytesOf(offsets), device.HostBuffer(cache.AsBytes(p.Weights))
		b, err := c.On(0).Enqueue(ctx, 0, q.device(0, bytesOf(ids), device.HostBuffer(out)))
		if err = errors.Join(err, b.Wait()); err != nil {
			t.Fatal(err)
		}
		checkPooled(t, data, dtype.Float32, columns, rows, &own, out, "on a device")
	}
	for want, p := range map[string]pooling{
		"bags (3 from 34 on) must be some of those that 37 offsets have ends for": {Pooling: cache.Pooling{Offsets: offsets, FirstBag: 34, Bags: 3}},
		"bags (-1 from 0 on)":                                                {Pooling: cache.Pooling{Offsets: offsets, Bags: -1}},
		"bags (1 from -1 on)":                                                {Pooling: cache.Pooling{Offsets: offsets, FirstBag: -1, Bags: 1}},
		"first bag (2) must come with a number of bags":                      {Pooling: cache.Pooling{Offsets: offsets, FirstBag: 2}},
		"bags (3 from 0 on) must be some of those that 0 offs":               {Pooling: cache.Pooling{Bag: 3, Bags: 3}},
		fmt.Sprintf("weights (2) must be one for each of %d rows", len(ids)): {Pooling: cache.Pooling{Offsets: offsets, FirstBag: 30, Bags: 3, Weights: make([]float32, 2)}},
	} {
		if err := c.Gather(ctx, p.host(0, ids, nil)); !errors.Is(err, cache.ErrPooling) || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("%v, want %s", err, want)
		}
		q := p
		q.Offsets, q.Weights, q.DeviceOffsets, q.DeviceWeights = nil, nil, bytesOf(p.Offsets), device.HostBuffer(cache.AsBytes(p.Weights))
		if _, err := c.On(0).Enqueue(ctx, 0, q.device(0, bytesOf(ids), device.Buffer{})); !errors.Is(err, cache.ErrPooling) || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("on a device: %v, want %s", err, want)
		}
	}
	bad := slices.Clone(offsets)
	bad[3] = bad[5] + 1
	if err := c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, bags*columns*4), Pool: &cache.Pooling{Offsets: bad, Bags: 9}}); !errors.Is(err, cache.ErrPooling) {
		t.Errorf("offsets out of order: %v", err)
	}
}

// TestEnqueue_SeveralTables adds up rows of several tables in one call, on the host backend, and refuses all if one is wrong.
func TestEnqueue_SeveralTables(t *testing.T) {
	const tableRows = 300
	var tables []cache.Table
	var all [][]byte
	for i, of := range floats {
		all = append(all, floatTable(tableRows, 8*(i+1), of, true, uint64(i)))
		tables = append(tables, floatsOf(t, fmt.Sprint("t", i), of, all[i], 8*(i+1)))
	}
	c := newCache(t, cache.Options{Tables: tables, Budget: 20_000, Devices: cache.DeviceOptions{Backend: "host"}})
	r := rand.New(rand.NewPCG(5, 6))
	ids, offsets := keyed(r, 3, 20, tableRows)
	batches, outs := make([]cache.Request, 3), make([][]byte, 3)
	for i, of := range floats {
		outs[i] = make([]byte, 20*8*(i+1)*of.Size())
		batches[i] = pooling{Pooling: cache.Pooling{Mode: cache.PoolMode(i), DeviceOffsets: bytesOf(offsets), FirstBag: 20 * i, Bags: 20}}.device(i, bytesOf(ids), device.HostBuffer(outs[i]))
	}
	b, err := c.On(0).Enqueue(ctx, 0, batches...)
	if err = errors.Join(err, b.Wait()); err != nil {
		t.Fatal(err)
	}
	for i, of := range floats {
		p, rows := ofFeature(pooling{Pooling: *batches[i].Pool}, ids, offsets, i, 20)
		checkPooled(t, all[i], of, 8*(i+1), rows, &p, outs[i], fmt.Sprint("table ", i))
		clear(outs[i])
		if s := stats(t, c).Tables[i]; s.Gathers != 1 || s.Lookups != int64(len(rows)) {
			t.Errorf("table %d: %d gathers, %d lookups of %d rows", i, s.Gathers, s.Lookups, len(rows))
		}
	}
	batches[1].Pool.Mode = 7
	if _, err := c.On(0).Enqueue(ctx, 0, batches...); !errors.Is(err, cache.ErrPooling) || err.Error() != "batch 1: cache: bad pooling: mode (7) must be sum, mean or max" {
		t.Errorf("%v", err)
	}
	if len(bytes.Trim(outs[0], "\x00")) != 0 {
		t.Error("a call with a bad batch has written")
	}
	if b, err := c.On(0).Enqueue(ctx, 0); err != nil || b.Wait() != nil {
		t.Errorf("no batches: %v", err)
	}
}

// TestEnqueue_CopiesAndSums copies and adds up rows in one call, on the host backend. If one of the requests is wrong, nothing is written, and the error names it.
func TestEnqueue_CopiesAndSums(t *testing.T) {
	const tableRows, columns = 300, 8
	var tables []cache.Table
	var all [][]byte
	for i := range 2 {
		all = append(all, floatTable(tableRows, columns, dtype.Float32, true, uint64(i)))
		tables = append(tables, floatsOf(t, fmt.Sprint("t", i), dtype.Float32, all[i], columns))
	}
	c := newCache(t, cache.Options{Tables: tables, Budget: 10_000, Devices: cache.DeviceOptions{Backend: "host"}})
	r := rand.New(rand.NewPCG(7, 8))
	ids, outs := make([][]int64, 4), make([][]byte, 4)
	for i := range ids {
		ids[i], outs[i] = randomRows(r, 20, tableRows), make([]byte, 20*columns*4)
	}
	sums := pooling{Pooling: cache.Pooling{Bag: 1}}
	requests := func() []cache.Request {
		return []cache.Request{
			{Table: 1, DeviceRows: bytesOf(ids[0]), DeviceOut: device.HostBuffer(outs[0])},
			sums.device(0, bytesOf(ids[1]), device.HostBuffer(outs[1])),
			{Table: 0, DeviceRows: bytesOf(ids[2]), DeviceOut: device.HostBuffer(outs[2])},
			{Table: 0}, // no rows
			sums.device(1, bytesOf(ids[3]), device.HostBuffer(outs[3])),
		}
	}
	for what, bad := range map[string]struct {
		at     int
		change func(*cache.Request)
		want   string
		is     error
	}{
		"short output":    {2, func(q *cache.Request) { q.DeviceOut = q.DeviceOut.Slice(0, 32) }, "batch 2: cache: wrong size: 32 bytes for 20 rows of table t0 must be 640", cache.ErrOutput},
		"odd row numbers": {2, func(q *cache.Request) { q.DeviceRows = q.DeviceRows.Slice(0, 157) }, "batch 2: cache: row numbers (157 bytes at ", nil},
		"odd sums": {4, func(q *cache.Request) {
			q.DeviceRows, q.DeviceOut = q.DeviceRows.Slice(0, 157), q.DeviceOut.Slice(0, 19*32)
		}, "batch 4: cache: row numbers (157 bytes at ", nil},
		"no such table": {4, func(q *cache.Request) { q.Table = 2 }, "batch 4: cache: table (2) must be 0 to 1", cache.ErrTable},
	} {
		q := requests()
		bad.change(&q[bad.at])
		if _, err := c.On(0).Enqueue(ctx, 0, q...); err == nil || !strings.Contains(err.Error(), bad.want) || bad.is != nil && !errors.Is(err, bad.is) {
			t.Errorf("%s: %v, want %s", what, err, bad.want)
		}
		for i, out := range outs {
			if len(bytes.Trim(out, "\x00")) != 0 {
				t.Fatalf("%s: output %d has been written", what, i)
			}
		}
	}
	b, err := c.On(0).Enqueue(ctx, 0, requests()...)
	if err = errors.Join(err, b.Wait()); err != nil {
		t.Fatal(err)
	}
	for i, table := range []int{1, 0, 0, 1} {
		for j, row := range ids[i] {
			if got, want := outs[i][j*32:][:32], all[table][row*32:][:32]; !bytes.Equal(got, want) {
				t.Fatalf("output %d, row %d: %x, want %x", i, row, got, want)
			}
		}
	}
	ids[2][3] = tableRows
	b, err = c.On(0).Enqueue(ctx, 0, requests()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "1 of 20 are not 0 to 299 of table t0, the first at position 3") {
		t.Errorf("a row number out of range: %v", err)
	}
}

func floatsOf(t *testing.T, name string, of dtype.Type, data []byte, columns int) cache.Table {
	t.Helper()
	table, err := cache.FromBytes(name, of, data, columns*of.Size())
	if err != nil {
		t.Fatal(err)
	}
	return table
}
