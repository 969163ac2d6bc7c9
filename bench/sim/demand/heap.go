package demand

// heap has rows by key, the least on top, those of equal keys in the order in which they got it.
type heap struct {
	items []item
	at    []uint32 // of each row: its index + 1, 0: not there
	ticks uint64
}

type item struct {
	key  float64
	tick uint64
	row  uint32
}

func (a *item) less(b *item) bool { return a.key < b.key || a.key == b.key && a.tick < b.tick }

func newHeap(rows int) heap { return heap{at: make([]uint32, rows)} }

func (h *heap) has(row uint32) bool { return h.at[row] != 0 }

// set gives a row a key, and puts it in if it is not there.
func (h *heap) set(row uint32, key float64) {
	h.ticks++
	next := item{key, h.ticks, row}
	i := int(h.at[row]) - 1
	if i < 0 {
		i = len(h.items)
		h.items = append(h.items, next)
	} else if h.items[i].less(&next) {
		h.down(i, next)
		return
	}
	h.up(i, next)
}

// remove takes a row out. REQUIRES: it is there.
func (h *heap) remove(row uint32) {
	i := int(h.at[row]) - 1
	h.at[row] = 0
	last := h.items[len(h.items)-1]
	h.items = h.items[:len(h.items)-1]
	if i == len(h.items) {
		return
	}
	if i > 0 && last.less(&h.items[(i-1)/4]) {
		h.up(i, last)
	} else {
		h.down(i, last)
	}
}

// up puts an item in the place of i or of one above it.
func (h *heap) up(i int, it item) {
	for i > 0 {
		parent := (i - 1) / 4
		if !it.less(&h.items[parent]) {
			break
		}
		h.put(i, h.items[parent])
		i = parent
	}
	h.put(i, it)
}

// down puts an item in the place of i or of one below it.
func (h *heap) down(i int, it item) {
	for {
		first := 4*i + 1
		if first >= len(h.items) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h.items)); c++ {
			if h.items[c].less(&h.items[least]) {
				least = c
			}
		}
		if !h.items[least].less(&it) {
			break
		}
		h.put(i, h.items[least])
		i = least
	}
	h.put(i, it)
}

func (h *heap) put(i int, it item) {
	h.items[i] = it
	h.at[it.row] = uint32(i + 1)
}

// heaped is what caches have that evict the row with the least key.
type heaped struct {
	capacity, used int64
	sizes
	heap heap
}

func newHeaped(c Config) heaped {
	return heaped{capacity: c.Capacity, sizes: c.sizes, heap: newHeap(c.rows)}
}

// makeRoom evicts rows until size fits, and returns the key of the last one evicted, or the given one if none was.
func (c *heaped) makeRoom(size int64, key float64) float64 {
	for c.used+size > c.capacity {
		key = c.heap.items[0].key
		c.remove(c.heap.items[0].row)
	}
	return key
}

func (c *heaped) remove(id uint32) {
	if c.heap.has(id) {
		c.heap.remove(id)
		c.used -= c.bytes(id)
	}
}
