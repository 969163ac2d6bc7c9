package demand

import "math/rand/v2"

// drawn is a set of rows of which one is drawn at random.
type drawn struct {
	held   []uint32
	at     []uint32 // of each row: its index in held + 1, 0 if it is not held
	random *rand.Rand
}

func newDrawn(c Config) drawn {
	return drawn{at: make([]uint32, c.rows), random: rand.New(rand.NewPCG(c.Seed, 1))}
}

func (d *drawn) has(row uint32) bool { return d.at[row] != 0 }

// draw returns a row. REQUIRES: there is one.
func (d *drawn) draw() uint32 { return d.held[d.random.IntN(len(d.held))] }

// add adds a row. REQUIRES: it is not held.
func (d *drawn) add(row uint32) {
	d.held = append(d.held, row)
	d.at[row] = uint32(len(d.held))
}

// drop takes a row out, and returns whether it was held.
func (d *drawn) drop(row uint32) bool {
	i := d.at[row]
	if i == 0 {
		return false
	}
	last := d.held[len(d.held)-1]
	d.held[i-1], d.at[last] = last, i
	d.held = d.held[:len(d.held)-1]
	d.at[row] = 0
	return true
}
