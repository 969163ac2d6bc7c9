//go:build cgo

package main

import (
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
)

// slowDevice is a device whose events pass when a test says so.
type slowDevice struct{ device.Device }

type slowEvent struct {
	device.Event
	running bool
}

func (d slowDevice) NewEvent() (device.Event, error) { return &slowEvent{}, nil }
func (e *slowEvent) Passed() (bool, error)           { return !e.running, nil }

// TestBounce_PagedBatchesBeside: batches of tables of pages, which may wait long, hold areas of their own; so many of the others are enqueued ahead as always.
func TestBounce_PagedBatchesBeside(t *testing.T) {
	b := &bounce{device: slowDevice{host.Open(1, 1)[0]}}
	take := func(paged bool) (int, *slowEvent) {
		t.Helper()
		a, err := b.take(paged, 8)
		if err != nil {
			t.Fatal(err)
		}
		e := a.done.(*slowEvent)
		was := e.running
		e.running = true
		for i := range b.areas {
			if &b.areas[i] == a {
				if was {
					return -i - 1, e // to be waited for
				}
				return i, e
			}
		}
		t.Fatal("an area of another list")
		return 0, nil
	}
	for want := range 8 {
		if got, _ := take(true); got != want {
			t.Errorf("batch %d of a table of pages has area %d", want, got)
		}
	}
	var first *slowEvent
	for want := 8; want < 8+mostAreas; want++ {
		got, e := take(false)
		if got != want {
			t.Errorf("a batch of another table has area %d, want %d", got, want)
		}
		if first == nil {
			first = e
		}
	}
	for range 2 { // the first taken, then the second
		if got, _ := take(false); got != -9 && got != -10 {
			t.Errorf("a batch too many has area %d, want to wait for 8 or 9", got)
		}
	}
	first.running = false
	if got, _ := take(true); got != 8 {
		t.Errorf("area %d, want 8, which nobody uses", got)
	}
	for want := len(b.areas); len(b.areas) < pagedAreas+mostAreas-1; want++ {
		if got, _ := take(true); got != want {
			t.Fatalf("area %d, want %d", got, want)
		}
	}
	if got, _ := take(true); got != -1 {
		t.Errorf("area %d, want to wait for the first", got)
	}
}

// TestBounce_Memory: long batches of tables of pages have areas of pagedBytes in all, whatever areas short ones had before, and areas that nobody uses give way.
func TestBounce_Memory(t *testing.T) {
	b := &bounce{device: slowDevice{host.Open(1, 1)[0]}}
	fill := func(bytes int64) (events []*slowEvent) {
		t.Helper()
		for range pagedAreas {
			a, err := b.take(true, bytes)
			if err != nil {
				t.Fatal(err)
			}
			e := a.done.(*slowEvent)
			if e.running {
				return events
			}
			if err := b.fit(a, bytes); err != nil {
				t.Fatal(err)
			}
			e.running = true
			events = append(events, e)
		}
		return events
	}
	held := func() (n int64) {
		for _, a := range b.areas {
			n += a.memory.Size()
		}
		return n
	}
	short := fill(1000)
	if len(short) != pagedAreas || held() != pagedAreas*64<<10 {
		t.Errorf("%d short batches at a time, %d bytes", len(short), held())
	}
	for _, e := range short {
		e.running = false
	}
	if n := len(fill(bounceBytes)); n != pagedBytes/bounceBytes || held() != pagedBytes {
		t.Errorf("%d long batches at a time, %d bytes, want %d and %d", n, held(), pagedBytes/bounceBytes, pagedBytes)
	}
	if (&served{bounces: []bounce{{areas: b.areas}, {}}}).bounceBytes() != pagedBytes {
		t.Error("the areas of a cache must be counted")
	}
	for i := range b.areas {
		b.device.Free(b.areas[i].memory)
	}
}

// TestBounce_NothingIsFreedWhileABatchWaits: memory of areas that grow is freed when no batch of a table of pages is under way.
func TestBounce_NothingIsFreedWhileABatchWaits(t *testing.T) {
	b := &bounce{device: slowDevice{host.Open(1, 1)[0]}}
	gather := func(paged bool, bytes int64) *slowEvent {
		t.Helper()
		a, err := b.take(paged, bytes)
		if err == nil {
			err = b.fit(a, bytes)
		}
		if err != nil || a.memory.Size() < bytes {
			t.Fatal(a.memory.Size(), err)
		}
		return a.done.(*slowEvent)
	}
	s := &served{bounces: make([]bounce, 1)}
	held := func() int64 { s.bounces[0].areas, s.bounces[0].spent = b.areas, b.spent; return s.bounceBytes() }
	waits := gather(true, 8)
	waits.running = true
	gather(false, 8)
	gather(false, 1<<20) // the second area again
	if want := int64(2*64<<10 + 1<<20); held() != want {
		t.Errorf("%d bytes while a batch may wait, want %d", held(), want)
	}
	waits.running = false
	gather(false, 8)
	if want := int64(64<<10 + 1<<20); held() != want {
		t.Errorf("%d bytes afterwards, want %d", held(), want)
	}
	gather(true, 4<<20)
	if want := int64(4 << 20); held() != want {
		t.Errorf("%d bytes when all areas had been idle, want %d", held(), want)
	}
	b.device.Free(b.areas[0].memory)
	b.device.Free(b.areas[1].memory)
}
