package cache_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/dtype"
)

// ending is a context that ends when it has been asked a number of times.
type ending struct {
	context.Context
	left atomic.Int64
}

func endingAfter(asked int64) *ending {
	e := &ending{Context: context.Background()}
	e.left.Store(asked)
	return e
}

func (e *ending) Err() error {
	if e.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestNewContext_Ends: NewContext ends early wherever the context ends, and adopted memory has its rows again.
func TestNewContext_Ends(t *testing.T) {
	onBackends(t, func(t *testing.T, backend cache.Backend) {
		const rows, rowBytes = 40_000, 256
		data := normalTable(rows, rowBytes/4, 1)
		asked := int64(0) // times that a whole New asks
		for _, after := range []int64{0, 1, 2, 3, 5, 9, 1 << 40} {
			for name, table := range map[string]func(mem []byte) cache.Table{
				"copied":  func([]byte) cache.Table { return fromBytes(t, "x", data, rowBytes) },
				"adopted": func(mem []byte) cache.Table { return adopt(t, "x", mem, rowBytes) },
			} {
				mem, ctx := mapped(t, data), endingAfter(after)
				c, err := cache.NewContext(ctx, cache.Options{
					Tables: []cache.Table{table(mem)}, Budget: 1 << 20, Codec: "ibp4", Devices: cache.DeviceOptions{Backend: backend},
					Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) {
						for i := range 4 {
							if !yield(0, []int64{int64(i)}) {
								return
							}
						}
					}},
				})
				if after == 1<<40 {
					asked = max(asked, after-ctx.left.Load())
					if err != nil {
						t.Fatal(err)
					}
					c.Close()
					continue
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s, ended after %d questions: %v", name, after, err)
				}
				if err == nil {
					c.Close()
				}
				if !bytes.Equal(mem, data) {
					t.Errorf("%s, ended after %d questions: the memory has other rows", name, after)
				}
			}
		}
		if asked < 10 {
			t.Errorf("the context is asked %d times, want one for each part", asked)
		}
	})
}

// TestNewContext_Training: no batch of training is read once the context has ended.
func TestNewContext_Training(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	read := 0
	var training admission.Training = func(yield func(int, []int64) bool) {
		for yield(0, []int64{1}) {
			if read++; read == 3 {
				cancel()
			}
		}
	}
	_, err := cache.NewContext(ctx, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", normalTable(1000, 16, 1), 64)}, Budget: 1 << 16, Admission: cache.AdmissionOptions{Training: training},
		Devices: cache.DeviceOptions{Backend: cache.BackendHost},
	})
	if !errors.Is(err, context.Canceled) || read != 3 {
		t.Errorf("%d batches were read: %v", read, err)
	}
}

// TestFromReader: rows come from the function, from several goroutines, and its error is New's; it is closed once in either case.
func TestFromReader(t *testing.T) {
	const rows, rowBytes = 50_000, 100
	data := normalTable(rows, rowBytes/4, 1)
	broken := errors.New("broken")
	for _, fails := range []bool{false, true} {
		var closed atomic.Int64
		table, err := cache.FromReader("x", dtype.Float32, rows, rowBytes, func(row int64, dst []byte) error {
			if fails && row > rows/2 {
				return broken
			}
			copy(dst, data[row*rowBytes:])
			return nil
		}, func() error { closed.Add(1); return nil })
		if err != nil {
			t.Fatal(err)
		}
		c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
		if fails != errors.Is(err, broken) || closed.Load() != 1 {
			t.Errorf("fails: %v: New returned %v, and the reader was closed %d times", fails, err, closed.Load())
		}
		if err != nil {
			continue
		}
		ids := []int64{0, rows - 1, 777, rows / 2}
		out := make([]byte, len(ids)*rowBytes)
		if err := c.Gather(context.Background(), 0, ids, out); err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if !bytes.Equal(out[i*rowBytes:][:rowBytes], data[id*rowBytes:][:rowBytes]) {
				t.Errorf("row %d differs", id)
			}
		}
		c.Close()
	}
	for _, rows := range []int64{-1, 1 << 50} {
		if _, err := cache.FromReader("x", dtype.Float32, rows, 4, nil, nil); err == nil {
			t.Errorf("%d rows were accepted", rows)
		}
	}
	if _, err := cache.FromReader("x", dtype.Float32, 1, 6, nil, nil); err == nil {
		t.Error("rows of 6 bytes of float32 were accepted")
	}
}
