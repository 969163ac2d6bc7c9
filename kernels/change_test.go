package kernels_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
)

// pinned returns page-locked memory that is freed when the test ends.
func (b *bench) pinned(data []byte) device.Buffer {
	b.t.Helper()
	m, err := b.d.AllocHost(int64(len(data)), "test")
	b.check(err)
	b.t.Cleanup(func() { b.d.Free(m) })
	copy(m.Bytes(), data)
	return m
}

// TestStore_EqualsHost stores words at distinct indices, some beyond the target, which has guards.
func TestStore_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, n := range []int{0, 1, 255, 257, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			both(t, gpu, reason, func(b *bench) []byte {
				r := rand.New(rand.NewPCG(uint64(n), 1))
				target := b.output(int64(n+1)*8*2, 0)
				var words []uint64
				for _, i := range r.Perm(2*n + 100)[:n] {
					words = append(words, uint64(i), r.Uint64())
				}
				b.launch(&kernels.Store{Target: target.rows, Words: b.pinned(asBytes(words))})
				return target.read(b)
			}, func(t *testing.T, want, got []byte) {
				if !bytes.Equal(want, got) {
					t.Errorf("%d words: stores differ", n)
				}
				if n >= 255 && bytes.Count(got, []byte{0xa5}) > len(got)*9/10 {
					t.Errorf("%d words: hardly anything was stored", n)
				}
			})
		})
	}
}

// TestScatter_EqualsHost copies rows of many lengths to slots in another order; what lies between slots stays.
func TestScatter_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, n := range []int{0, 1, 9, 3000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			both(t, gpu, reason, func(b *bench) []byte {
				r := rand.New(rand.NewPCG(uint64(n), 2))
				var stage []byte
				var items []kernels.ScatterItem
				at := uint64(0)
				for range n {
					length := 1 + r.IntN(700)
					row := make([]byte, (length+15)&^15)
					for i := range length {
						row[i] = byte(r.Uint32())
					}
					items = append(items, kernels.ScatterItem{From: uint32(len(stage)), To: at, Bytes: uint32(length)})
					stage = append(stage, row...)
					at += uint64(len(row)) + 16*uint64(r.IntN(3))
				}
				r.Shuffle(n, func(i, j int) { items[i], items[j] = items[j], items[i] })
				slab := b.output(int64(at)+16, 0)
				b.launch(&kernels.Scatter{Slab: slab.rows, Stage: b.pinned(append(stage, 0)), Items: b.pinned(asBytes(items))})
				out := slab.read(b)
				for _, item := range items {
					got := out[item.To:][:item.Bytes]
					if want := stage[item.From:][:item.Bytes]; !bytes.Equal(got, want) {
						b.t.Fatalf("row of %d bytes at %d is not there", item.Bytes, item.To)
					}
					// The rest of its slot is its own.
					clear(out[item.To+uint64(item.Bytes) : (item.To+uint64(item.Bytes)+15)&^15])
				}
				return out
			}, func(t *testing.T, want, got []byte) {
				if !bytes.Equal(want, got) {
					t.Errorf("%d rows: slabs differ", n)
				}
			})
		})
	}
}
