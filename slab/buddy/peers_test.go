package buddy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestPeers_Golden(t *testing.T) {
	for _, c := range []struct {
		room, peers, left []int64
	}{
		{[]int64{10, 10}, []int64{1, 0}, []int64{0, 0}},
		{[]int64{30, 30, 30, 30}, []int64{1, 2, 3, 0}, []int64{20, 20, 20, 20}},
		{[]int64{9, 100}, []int64{1, 1}, []int64{9, 80}}, // the second device has its own rows, too: the first has no room
		{[]int64{10, 100}, []int64{1, 0}, []int64{0, 90}},
		{[]int64{0, 25, 5}, nil, []int64{0, 25, 5}},
		{[]int64{-5, 10, 20}, []int64{2, 2, 1}, []int64{-5, 0, 0}},
	} {
		room := slices.Clone(c.room)
		peers, ok := Peers(10, room)
		got := make([]int64, 0)
		for _, p := range peers {
			got = append(got, int64(p))
		}
		if ok != (c.peers != nil) || !slices.Equal(got, c.peers) || !slices.Equal(room, c.left) {
			t.Errorf("%v: %v, %v, left %v; want %v, left %v", c.room, peers, ok, room, c.peers, c.left)
		}
	}
}

// Peers finds room whenever there is some, and takes no more of a device than it has.
func TestPeers_FitsWhereThereIsRoom(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 31))
	for range 2000 {
		room, bytes, places := make([]int64, 1+r.IntN(8)), 1+r.Int64N(20), int64(0)
		for i := range room {
			room[i] = r.Int64N(60)
			places += room[i] / bytes
		}
		left := slices.Clone(room)
		peers, ok := Peers(bytes, left)
		if ok != (places >= int64(len(room))) {
			t.Fatalf("%d bytes in %v: %v", bytes, room, peers)
		}
		for d, p := range peers {
			room[p] -= bytes
			if room[p] < 0 {
				t.Fatalf("%d bytes: device %d has no room for device %d's", bytes, p, d)
			}
		}
		if !slices.Equal(left, room) {
			t.Fatalf("left %v, want %v", left, room)
		}
	}
}
