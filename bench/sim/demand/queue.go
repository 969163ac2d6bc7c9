package demand

// place says where a cache holds a row: in which queue, since which push, and what the policy notes about it.
type place struct {
	at uint32 // the push's number
	in uint8  // the queue, 0: none
	// note is a count or a mark.
	note uint8
}

// rows are what a cache knows of each row.
type rows struct {
	place []place
	sizes
}

// sizes are the rows' sizes, as of the request under way.
type sizes struct{ size []int64 } // nil: every row counts 1

func (s *sizes) bytes(id uint32) int64 {
	if s.size == nil {
		return 1
	}
	return s.size[id]
}

// queue is a FIFO of rows from which any row can be taken, and which a row can enter again, at no cost: the entry stays behind
// and is skipped when it comes to the front, as the row is elsewhere by then. An access touches one place of memory
// that depends on the row; in a linked list it would be four.
type queue struct {
	ring       []uint32
	head, tail uint32 // pushes, modulo 2^32; the ring has those in between
	number     uint8  // not 0
	live       int    // entries that count
	used       int64  // their size
}

func newQueue(number uint8) queue { return queue{ring: make([]uint32, 1024), number: number} }

// push puts a row at the end. REQUIRES: no queue has it.
func (q *queue) push(r *rows, id uint32) {
	q.live++
	q.used += r.bytes(id)
	q.append(r, id)
}

// again moves a row of the queue to its end.
func (q *queue) again(r *rows, id uint32) { q.append(r, id) }

func (q *queue) append(r *rows, id uint32) {
	if q.tail-q.head == uint32(len(q.ring)) {
		q.makeRoom(r)
	}
	q.ring[q.tail&uint32(len(q.ring)-1)] = id
	p := &r.place[id]
	p.at, p.in = q.tail, q.number
	q.tail++
}

// take takes a row of the queue out of it.
func (q *queue) take(r *rows, id uint32) {
	q.live--
	q.used -= r.bytes(id)
	r.place[id].in = 0
}

// pop takes the first row out. REQUIRES: live > 0.
func (q *queue) pop(r *rows) uint32 {
	for {
		id := q.ring[q.head&uint32(len(q.ring)-1)]
		p := &r.place[id]
		q.head++
		if p.at == q.head-1 && p.in == q.number {
			q.live--
			q.used -= r.bytes(id)
			p.in = 0
			return id
		}
	}
}

// maxStale is how many entries the ring has room for, per live one, before those left behind are removed. Under Zipf(1.0), the window
// of LRU with a tenth of the rows is 3.5 times the live ones; with room for 2, LRU makes 53 instead of 69 M requests/s.
const maxStale = 16

func (q *queue) makeRoom(r *rows) {
	old, n := q.ring, q.tail-q.head
	if len(old) < maxStale*q.live && len(old) < 1<<31 {
		q.ring = make([]uint32, 2*len(old))
		for i := range n {
			at := q.head + i
			q.ring[at&uint32(len(q.ring)-1)] = old[at&uint32(len(old)-1)]
		}
		return
	}
	mask := uint32(len(old) - 1)
	to := q.head
	for i := range n {
		at := q.head + i
		id := old[at&mask]
		if p := &r.place[id]; p.at == at && p.in == q.number {
			old[to&mask], p.at = id, to
			to++
		}
	}
	q.tail = to
}
