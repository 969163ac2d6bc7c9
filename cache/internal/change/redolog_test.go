package change

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// TestRedoLog_WavesMakeACopy: the waves of any number of operations, each wave's stores in any order, make a copy equal;
// and in between, a key that the copy has never has another's location.
func TestRedoLog_WavesMakeACopy(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	l := hashmap.LayoutFor(300)
	mem, replica := make([]byte, l.Bytes()), make([]byte, l.Bytes())
	m, copied := hashmap.View(mem, l), hashmap.View(replica, l)
	m.Clear()
	copied.Clear()
	var log redoLog
	m.OnStore(log.add)
	owner := map[slab.Location]uint64{} // which key a location was ever given to
	at := int64(0)
	for round := range 400 {
		var deleted []int64
		for range 1 + r.IntN(60) {
			key := hashmap.Key(0, r.Int64N(400))
			log.operation()
			switch r.IntN(4) {
			case 0, 1:
				at += 16
				owner[slab.Raw(0, at)] = key
				m.Insert(key, slab.Raw(0, at))
			case 2:
				m.Erase(key, slab.Evicted)
			default:
				if s, ok := m.Delete(key); ok {
					deleted = append(deleted, s)
				}
			}
		}
		for _, wave := range log.waves {
			r.Shuffle(len(wave), func(i, j int) { wave[i], wave[j] = wave[j], wave[i] })
			for _, w := range wave {
				for i := range 8 {
					replica[8*w.index+uint64(i)] = byte(w.value >> (8 * i))
				}
				for key, loc := range copied.All() {
					if owner[loc] != key {
						t.Fatalf("round %d: key %#x has the location of %#x", round, key, owner[loc])
					}
				}
			}
		}
		log.clear()
		if !bytes.Equal(mem, replica) {
			t.Fatalf("round %d: the copy differs", round)
		}
		for _, s := range deleted { // an epoch later
			log.operation()
			m.Reclaim(s)
		}
	}
}
