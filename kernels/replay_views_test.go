package kernels_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// TestReplay_ReadsOneView replaces the view while replays run. Two packed host tiers, at different places and with the rows at different offsets,
// take turns; a block that took one word of its view from one and another word from the other would find wrong rows.
func TestReplay_ReadsOneView(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	if gpu == nil {
		t.Skip(reason)
	}
	const rowBytes, rows, n = 128, 500, 1000
	data := make([]byte, rows*rowBytes)
	for i := range len(data) / 4 {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(i*4/rowBytes))
	}
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := &bench{t, gpu, s}
	var views [2]kernels.Serve
	for i := range views {
		tier, err := transfer.Load(gpu, transfer.SourceOf(data, rowBytes), transfer.Options{Codec: "ibp4", Mode: transfer.Packed, Seed: 1, OnHost: true})
		b.check(err)
		defer tier.Close()
		if i > 0 { // row 0, which no batch asks for, becomes longer: the tier is packed anew, and all others lie elsewhere
			for range 2 { // the first time makes room for the longer row
				old, err := tier.Repack()
				b.check(err)
				defer gpu.Free(old.Mem)
				defer gpu.Free(old.Index)
				_, _, err = tier.Write(0, gputest.Rows("noise", 1, rowBytes, 1), false)
				b.check(err)
			}
		}
		attached, c, err := tier.Attach(gpu)
		b.check(err)
		defer transfer.Detach(gpu, attached, c)
		views[i] = kernels.Serve{Tier: attached, Codec: c}
	}
	layout := hashmap.LayoutFor(1)
	image := make([]uint64, layout.Bytes()/8)
	_, err = hashmap.View(asBytes(image), layout).Build(nil)
	b.check(err)
	ids := make([]int64, n)
	var want []byte
	for i := range ids {
		ids[i] = int64(1 + i*7%(rows-1))
		want = append(want, data[ids[i]*rowBytes:][:rowBytes]...)
	}
	none := b.put(make([]byte, (rows+63)/64*8))
	out := b.output(n*rowBytes, 0)
	for i := range views {
		views[i].Lookup = kernels.Lookup{
			Map: b.put(asBytes(image)), Layout: layout, Limit: rows, Rows: b.putRows(ids, false), Rejected: none, Oversize: none, Out: out.rows, RowBytes: rowBytes,
		}
	}
	k := kernels.Replay{Serve: views[0], State: b.put(make([]byte, kernels.ReplayStateBytes)), Views: b.put(make([]byte, kernels.ReplayViewsBytes))}
	view, word := make([]byte, kernels.ReplayViewBytes), make([]byte, 8)
	version := uint64(0)
	show := func() error {
		version++
		views[version%2].WriteView(view)
		binary.NativeEndian.PutUint64(word, version)
		at := kernels.ReplayViewAt(version)
		return errors.Join(device.Upload(gpu, k.Views.Slice(at, at+kernels.ReplayViewBytes), view), device.Upload(gpu, k.Views.Slice(0, 8), word))
	}
	b.check(show())
	for round := range gputest.Few(2000, 300) {
		b.check(b.s.Launch(&k))
		for range kernels.ReplayTurns - 1 { // no view is written over while a replay may read it
			b.check(show())
		}
		b.check(b.s.Synchronize())
		if got := out.read(b); !bytes.Equal(got, want) {
			at := 0
			for bytes.Equal(got[at*rowBytes:][:rowBytes], want[at*rowBytes:][:rowBytes]) {
				at++
			}
			t.Fatalf("round %d: position %d has %x, want row %d", round, at, got[at*rowBytes:][:16], ids[at])
		}
	}
}
