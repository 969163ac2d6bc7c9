package cache_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/race"
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
		const rows, rowBytes = 20_000, 256
		data := normalTable(rows, rowBytes/4, 1)
		const whole = 1 << 40
		asked := int64(0) // times that a whole New asks, at least
		// In quarters of its questions a New reads, encodes, and fills the cache. Negative numbers are such quarters.
		for _, after := range []int64{whole, 0, 1, 3, 9, -1, -2, -3} {
			if after < 0 {
				after *= -asked / 4
			}
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
				if after == whole {
					if n := after - ctx.left.Load(); asked == 0 || n < asked {
						asked = n
					}
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

// stages is a context that never ends and counts who asks it, by the functions on the caller's stack.
type stages struct {
	context.Context
	mu    sync.Mutex
	asked map[string]int
}

func (s *stages) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pc [16]uintptr
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc[:])])
	for {
		frame, more := frames.Next()
		for of := range s.asked {
			if strings.Contains(frame.Function, of) {
				s.asked[of]++
				return nil
			}
		}
		if !more {
			return nil
		}
	}
}

// TestNewContext_EveryStage: each stage of filling asks the context for every part of its work, not only once.
func TestNewContext_EveryStage(t *testing.T) {
	onBackends(t, func(t *testing.T, backend cache.Backend) {
		const rows, batch = 200_000, 600_000
		ids := make([]int64, batch)
		for i := range ids {
			ids[i] = int64(i) * 7919 % rows
		}
		s := &stages{Context: context.Background(), asked: map[string]int{
			"Tier).pack": 0, "Tier).StoredLengths": 0, "filler).train": 0, "filler).choose": 0, "filler).admit": 0, "slabWriter).write": 0, "Map).BuildContext": 0,
		}}
		c, err := cache.NewContext(s, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", normalTable(rows, 4, 1), 16)}, Budget: rows * 64, Codec: "none", Devices: cache.DeviceOptions{Backend: backend},
			Host:      cache.HostOptions{Tier: cache.Packed},
			Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) { yield(0, ids) }},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for of, asked := range s.asked {
			least := 3 // of each batch of training 2^18 rows at a time; of others more
			if backend == cache.BackendCUDA && of == "Map).BuildContext" {
				least = 0 // the GPU builds it
			}
			if asked < least {
				t.Errorf("%s asks %d times, want at least %d", of, asked, least)
			}
		}
	})
}

// endless is a policy that ranks every row of a table and counts those that it was asked for; the first one calls a function.
type endless struct {
	admission.Policy
	rows   int64
	asked  int64
	ranked func()
}

func (e *endless) Rank() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for row := range e.rows {
			if e.asked++; e.asked == 1 {
				e.ranked()
			}
			if !yield(hashmap.Key(0, row)) {
				return
			}
		}
	}
}

// TestNewContext_Ranking: a ranking is not walked to its end once the context has ended.
func TestNewContext_Ranking(t *testing.T) {
	const rows = 50_000
	ctx, cancel := context.WithCancel(context.Background())
	policy := &endless{Policy: admission.NewFrequency(), rows: rows, ranked: cancel}
	c, err := cache.NewContext(ctx, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", normalTable(rows, 4, 1), 16)}, Budget: rows * 64, Codec: "none",
		Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Admission: cache.AdmissionOptions{Policy: policy},
	})
	if !errors.Is(err, context.Canceled) || policy.asked > 64 {
		t.Errorf("%d of %d rows were ranked after the end: %v", policy.asked, rows, err)
	}
	if err == nil {
		c.Close()
	}
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

// TestFromReader: rows come from the function, from several goroutines, and its error is New's; it is closed by a New that succeeds, or by Table.Close.
func TestFromReader(t *testing.T) {
	race.SkipSequential(t)
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
		if fails != errors.Is(err, broken) || fails == (closed.Load() == 1) {
			t.Errorf("fails: %v: New returned %v, and the reader was closed %d times", fails, err, closed.Load())
		}
		if err != nil {
			if err := table.Close(); err != nil || closed.Load() != 1 {
				t.Errorf("Close returned %v, and the reader was closed %d times", err, closed.Load())
			}
			continue
		}
		ids := []int64{0, rows - 1, 777, rows / 2}
		out := make([]byte, len(ids)*rowBytes)
		if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: out}); err != nil {
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
