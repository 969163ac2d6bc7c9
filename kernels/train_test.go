package kernels_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/codec/ibp"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
)

// TestMaskSearch_EqualsHost runs what the mask search is made of on both sides, and holds it against package ibp's search:
// counts, grown masks, and the bytes that rows take with them and with others.
func TestMaskSearch_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	lengths, counts := []int{1, 3, 4, 7, 8, 12, 100, 129, 256, 1001, 4096, 20_000}, []int{1, 31, 32, 33, 1000}
	if short() {
		lengths, counts = []int{3, 8, 12, 129}, []int{1, 33}
	}
	for i, rowBytes := range lengths {
		for _, n := range counts {
			for _, kind := range []string{"normal", gputest.Kinds[i%len(gputest.Kinds)]} {
				t.Run(fmt.Sprintf("row=%d/n=%d/%s", rowBytes, n, kind), func(t *testing.T) { testMaskSearch(t, gpu, reason, kind, n, rowBytes) })
			}
		}
	}
}

func testMaskSearch(t *testing.T, gpu device.Device, reason error, kind string, n, rowBytes int) {
	data := gputest.Rows(kind, n, rowBytes, 5)
	search, err := ibp.SearchOf(data, rowBytes)
	if err != nil {
		t.Fatal(err)
	}
	ones, err := search.Ones()
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		planes, ones []byte
		grown        [2][]byte
		sums         [2][]byte
	}
	var sets [2][]ibp.Masks
	for i, chunk := range []int{4, 8} {
		grown, err := search.Grow(chunk)
		if err != nil {
			t.Fatal(err)
		}
		size := len(grown.Mask)
		for range kernels.MaxMasks - 1 {
			sets[i] = append(sets[i], ibp.Masks{Mask: make([]byte, size), Bitval: make([]byte, size)})
		}
		sets[i] = append(sets[i], grown)
		for j, m := range sets[i] {
			for b := range size {
				switch {
				case b >= rowBytes:
					m.Mask[b], m.Bitval[b] = 0xff, 0
				case j < len(sets[i])-1 && (b+j)%3 == 0: // masks that some rows agree with
					m.Mask[b] = 0xf0 >> j
					m.Bitval[b] = data[b] & m.Mask[b]
				}
			}
		}
	}
	both(t, gpu, reason, func(b *bench) (r result) {
		s := kernels.Sample{Count: n, RowBytes: rowBytes}
		padded := make([]byte, n*4*s.RowWords())
		for i := range n {
			copy(padded[i*4*s.RowWords():], data[i*rowBytes:][:rowBytes])
		}
		s.Rows, s.Planes = b.put(padded), b.alloc(s.PlanesBytes())
		b.launch(&kernels.Planes{Sample: s})
		counts := b.alloc(int64(s.Words()) * 32 * 4)
		b.launch(&kernels.Ones{Sample: s, Counts: counts})
		r.planes, r.ones = b.get(s.Planes), b.get(counts)
		for i, chunk := range []int{4, 8} {
			grow := &kernels.Grow{Sample: s, Chunk: chunk}
			grow.Alive, grow.Masks = b.alloc(grow.AliveBytes()), b.alloc(int64(grow.Chunks())*16)
			b.launch(grow)
			r.grown[i] = b.get(grow.Masks)
			raw := make([]byte, s.MasksBytes(len(sets[i])))
			for j, m := range sets[i] {
				copy(raw[2*j*4*s.Words():], m.Mask)
				copy(raw[(2*j+1)*4*s.Words():], m.Bitval)
			}
			sums := b.alloc(int64(len(sets[i])) * 8)
			b.launch(&kernels.SampleBytes{Sample: s, Chunk: chunk, Masks: b.put(raw), Sums: sums})
			r.sums[i] = b.get(sums)
		}
		return r
	}, func(t *testing.T, want, got result) {
		if !bytes.Equal(want.planes, got.planes) || !bytes.Equal(want.ones, got.ones) {
			t.Fatal("planes or counts differ")
		}
		if !bytes.HasPrefix(got.ones, asBytes(ones)) {
			t.Fatal("counts are not package ibp's")
		}
		for i, chunk := range []int{4, 8} {
			if !bytes.Equal(want.grown[i], got.grown[i]) || !bytes.Equal(want.sums[i], got.sums[i]) {
				t.Fatalf("chunks of %d: masks or sums differ", chunk)
			}
			grown := sets[i][len(sets[i])-1]
			for c := 0; c*chunk < rowBytes; c++ {
				end := min((c+1)*chunk, rowBytes)
				if m := got.grown[i][16*c:]; !bytes.Equal(m[:end-c*chunk], grown.Mask[c*chunk:end]) || !bytes.Equal(m[8:][:end-c*chunk], grown.Bitval[c*chunk:end]) {
					t.Fatalf("chunk %d of %d bytes: mask is not package ibp's", c, chunk)
				}
			}
			stored, err := search.StoredBytes(chunk, sets[i])
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(asBytes(stored), got.sums[i]) {
				t.Fatalf("chunks of %d: sums are not package ibp's", chunk)
			}
		}
	})
}
