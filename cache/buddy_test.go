package cache_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/slab"
)

// Overflow places on devices lie where the budgets have room: on the device with the most left, another than the row's if possible. The statistics
// count them, and SetBudget leaves them their room.
func TestBuddy_LiesWhereBudgetsHaveRoom(t *testing.T) {
	const rows, rowBytes, slots, place = 300, 64, 100 * (16 + 8), 100*48 + slab.TailSlack
	data := residentRows(rows, rowBytes, rand.New(rand.NewPCG(22, 51)))
	for _, one := range []struct {
		name    string
		budgets []int64
		of      cache.BuddyMemory
		want    []int64 // of each device, in overflow places
	}{
		{"equal", []int64{20_000, 20_000, 20_000}, cache.BuddyPeer, []int64{1, 1, 1}},
		{"one with much", []int64{4_000, 4_000, 60_000}, cache.BuddyPeer, []int64{0, 0, 3}},
		{"auto", []int64{4_000, 60_000, 10_000}, cache.BuddyAuto, []int64{0, 2, 1}},
		{"auto without room", []int64{4_000, 4_000, 10_000}, cache.BuddyAuto, []int64{0, 0, 0}},
		{"host", []int64{60_000, 60_000, 60_000}, cache.BuddyHost, []int64{0, 0, 0}},
	} {
		t.Run(one.name, func(t *testing.T) {
			f := openFaulty(t, nil)
			c := openResident(t, data, rowBytes, "none", cache.ResidentOptions{Target: 16, Buddy: one.of}, 3, func(o *cache.Options) { o.Budgets, o.Budget = one.budgets, 0 })
			checkModel(t, c, data, rowBytes)
			for i, d := range f.devices {
				if d.buddy != one.want[i]*place {
					t.Errorf("device %d has %d B of overflow places, want %d of %d B", i, d.buddy, one.want[i], place)
				}
			}
			s := stats(t, c)
			r, n := s.Tables[0].Resident, one.want[0]+one.want[1]+one.want[2]
			if r.BuddyBytes != 3*place || r.PeerBytes != n*place || s.HostBytes != r.BuddyBytes-r.PeerBytes || s.ResidentBytes < 3*slots+n*place {
				t.Errorf("%+v, %d B of host memory, %d B resident", *r, s.HostBytes, s.ResidentBytes)
			}
			if moved := s.Tables[0].HostBytesMoved; (moved == 0) != (n > 0) || r.OverflowBytesRead != rows*48 {
				t.Errorf("%d B moved over the link, %d B read from overflow places", moved, r.OverflowBytesRead)
			}
			least := slices.Max(one.want)*place + slots + slab.TailSlack
			if err := c.SetBudget(ctx, least-200); !errors.Is(err, cache.ErrBudget) {
				t.Errorf("a budget below what the table takes: %v", err)
			}
			if err := c.SetBudget(ctx, least+1000); err != nil {
				t.Errorf("a budget that it takes: %v", err)
			}
			checkResidentStats(t, c, data, rowBytes)
		})
	}
}

// Cached tables have what overflow places on devices leave of each budget, and where there are such tables BuddyAuto leaves it to them.
func TestBuddy_BesideACachedTable(t *testing.T) {
	const rows, rowBytes = 2000, 64
	r := rand.New(rand.NewPCG(22, 52))
	data, other := residentRows(rows, rowBytes, r), residentRows(rows, rowBytes, r)
	for _, of := range []cache.BuddyMemory{cache.BuddyPeer, cache.BuddyAuto} {
		c := openResident(t, data, rowBytes, "none", cache.ResidentOptions{Target: 32, Buddy: of}, 2, func(o *cache.Options) {
			o.Tables = append(o.Tables, fromBytes(t, "cached", other, rowBytes))
			o.Budgets, o.Budget = []int64{150_000, 130_000}, 0
			o.Refresh = cache.RefreshOptions{Accesses: 1}
		})
		check := func(note string) {
			t.Helper()
			checkModel(t, c, data, rowBytes)
			out := make([]byte, len(other))
			if err := c.Gather(ctx, cache.Request{Table: 1, Rows: allRows(rows), Out: out}); err != nil || string(out) != string(other) {
				t.Fatalf("%s, %s: the cached table: %v", of, note, err)
			}
			s := stats(t, c)
			if on := s.Tables[0].Resident.PeerBytes; (on > 0) != (of == cache.BuddyPeer) {
				t.Errorf("%s, %s: %d B on devices", of, note, on)
			}
			if used := s.MetadataBytes + s.PayloadBytes + s.ResidentBytes; used > s.BudgetBytes || used < s.BudgetBytes*8/10 && s.Tables[1].CachedRows < rows*99/100 {
				t.Errorf("%s, %s: %d + %d + %d bytes of a budget of %d, %d rows cached", of, note, s.MetadataBytes, s.PayloadBytes, s.ResidentBytes, s.BudgetBytes, s.Tables[1].CachedRows)
			}
		}
		check("at first")
		for _, budget := range []int64{125_000, 300_000} {
			if err := c.SetBudget(ctx, budget); err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprint(budget))
		}
	}
}

// A move to another target takes overflow places from the budget, beside the old ones: without room it is an error, or, with BuddyAuto, they come to host
// memory.
func TestBuddy_RetargetTakesOfTheBudget(t *testing.T) {
	const rows, rowBytes = 600, 64
	data := residentRows(rows, rowBytes, rand.New(rand.NewPCG(22, 53)))
	for _, of := range []cache.BuddyMemory{cache.BuddyPeer, cache.BuddyAuto} {
		c := openResident(t, data, rowBytes, "ibp4", cache.ResidentOptions{Target: 48, Buddy: of}, 2, func(o *cache.Options) { o.Budget = 24_000 })
		on := func() int64 { return stats(t, c).Tables[0].Resident.PeerBytes }
		if n := on(); n != 2*(300*16+slab.TailSlack) {
			t.Fatalf("%s: %d B on devices", of, n)
		}
		err := c.Retarget(ctx, 0, 16)
		if (err == nil) != (of == cache.BuddyAuto) {
			t.Fatalf("%s: %v", of, err)
		}
		if err != nil && (!errors.Is(err, cache.ErrBudget) || !strings.Contains(err.Error(), "table features: overflow places on peers need 14528 B for those of each of the 2 devices")) {
			t.Errorf("%s: %v", of, err)
		}
		checkResidentStats(t, c, data, rowBytes)
		if err := c.SetBudget(ctx, 100_000); err != nil {
			t.Fatal(err)
		}
		for _, target := range []int{32, 16, 48} {
			if err := c.Retarget(ctx, 0, target); err != nil {
				t.Fatalf("%s, target %d: %v", of, target, err)
			}
			if n := on(); n != 2*(300*int64(64-target)+slab.TailSlack) {
				t.Errorf("%s, target %d: %d B on devices", of, target, n)
			}
			checkModel(t, c, data, rowBytes)
			// 300 slots and words of a device take 24 B a row and more, overflow places of slots of 16 B another 48 B.
			if err := c.SetBudget(ctx, 24_000); target == 16 && !errors.Is(err, cache.ErrBudget) || target == 48 && err != nil {
				t.Errorf("%s, target %d, in a smaller budget: %v", of, target, err)
			}
			if err := c.SetBudget(ctx, 100_000); err != nil {
				t.Fatal(err)
			}
		}
		checkResidentStats(t, c, data, rowBytes)
	}
}

func TestBuddy_RefusesWhatCannotBe(t *testing.T) {
	const rows, rowBytes = 100, 64
	for _, one := range []struct {
		of      cache.BuddyMemory
		devices int
		is      error
		want    string
	}{
		{"gpu", 2, nil, `cache: table x: Buddy ("gpu") must be host, peer or auto`},
		{cache.BuddyPeer, 1, nil, "cache: table x: Buddy (peer) needs at least 2 devices, there is 1"},
		{cache.BuddyPeer, 2, cache.ErrBudget, "table x, resident with overflow places on peers, needs 2528 B for those of each of the 2 devices: slots leave at most 1"},
	} {
		c, err := cache.New(cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", make([]byte, rows*rowBytes), rowBytes).ResidentWith(cache.ResidentOptions{Target: 16, Buddy: one.of})}, Budget: 3400, Codec: "none",
			Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: one.devices},
		})
		if err == nil {
			c.Close()
		}
		if err == nil || one.is != nil && !errors.Is(err, one.is) || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s on %d devices: %v", one.of, one.devices, err)
		}
	}
}
