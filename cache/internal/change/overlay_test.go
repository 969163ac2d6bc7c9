package change_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/change"
	"github.com/tensorcache/tensorcache/cache/internal/fill"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/transfer"
)

// open returns the store and writer of a cache of 64 raw rows of 64 bytes on the host backend.
func open(t *testing.T) (*place.Store, *change.Writer) {
	t.Helper()
	set := read.NewSet(host.Open(1, 1), read.Sampling{}, read.DefaultTuning())
	d := set.Devices[0]
	tier, err := transfer.Load(d.Device, transfer.SourceOf(make([]byte, 4096), 64), transfer.Options{Codec: "none"})
	if err != nil {
		t.Fatal(err)
	}
	set.SetTables([]*read.Table{{Name: "x", Tier: tier}})
	learner := learn.New(learn.Options{Policy: admission.NewFrequency(), Set: set})
	watch := observe.New(observe.Options{Logger: slog.New(slog.DiscardHandler)}, set)
	w := change.New(set, learner, watch, change.Options{Budget: 4096})
	store := &place.Store{Set: set, Hot: place.NewHot(place.HotOptions{}, 1)}
	store.Nodes, _ = place.ChooseNodes("/", set.Devices, []int{place.AnyNode}, watch.Log)
	filled, err := fill.Fill(store, fill.Options{
		Learner: learner, Log: watch.Log, Budgets: []int64{4096}, OneBudget: true, Training: func(func(int, []int64) bool) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Open(store, filled.Differing); err != nil {
		t.Fatal(err)
	}
	d.Serve()
	t.Cleanup(func() {
		w.End()
		d.Close()
		w.Free()
		tier.Close()
		watch.Close()
	})
	return store, w
}

// TestOverlay_PlacesWaitTwice deals with a group that has a place of the overlay in it: the place is free after the next one.
func TestOverlay_PlacesWaitTwice(t *testing.T) {
	store, w := open(t)
	slot, ok := store.Overlay.Put(make([]byte, 64), false)
	if !ok {
		t.Fatal("no place")
	}
	if used := w.ProcessOverlay(slot); used != int64(slot.Bytes) {
		t.Errorf("%d bytes used after an epoch, want %d", used, slot.Bytes)
	}
	if err := w.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if used := w.State().OverlayBytes; used != 0 {
		t.Errorf("%d bytes used after two epochs", used)
	}
}

// TestWriter_TakeOver: host tiers have the rows that are taken over only once begin has named the new owner's memory, and not at all if it fails.
func TestWriter_TakeOver(t *testing.T) {
	want := bytes.Repeat([]byte{7}, 64)
	rows := []place.NotedRow{{Key: hashmap.Key(0, 5), Stored: want}}
	for _, result := range []error{errors.New("no space"), nil} {
		store, w := open(t)
		stored := func() []byte {
			b, _, err := store.Set.Tables[0].Tier.Stored(5)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		err := w.TakeOver(rows, func() error {
			if w.ProcessingLocked() || !bytes.Equal(stored(), make([]byte, 64)) {
				t.Error("the host tier is written to before begin has returned")
			}
			return result
		})
		if !errors.Is(err, result) {
			t.Fatal(err)
		}
		if err != nil {
			continue
		}
		if err := w.Flush(context.Background()); err != nil || !bytes.Equal(stored(), want) {
			t.Errorf("row is %v, error %v", stored(), err)
		}
	}
}
