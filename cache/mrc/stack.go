package mrc

// stack computes stack distances. The last access of each row has a position. A Fenwick tree over the positions sums the
// sizes of the rows.
type stack struct {
	tree  []int64  // Fenwick tree; tree[0] is unused
	owner []uint32 // row at each position; positions start at 1
	at    []uint32 // position of each row, 0 if it has none
	size  []int64  // size of each row
	end   uint32   // last position in use
	live  int
	total int64
}

// access makes row the latest. known reports whether the row was accessed before, and others is the total size of the other
// rows accessed since.
func (s *stack) access(row uint32, size int64) (others int64, known bool) {
	for int(row) >= len(s.at) {
		s.at, s.size = append(s.at, 0), append(s.size, 0)
	}
	if p := s.at[row]; p != 0 {
		known = true
		others = s.total - s.until(p)
		s.remove(row)
	}
	if int(s.end)+1 >= len(s.tree) {
		s.compact()
	}
	s.end++
	s.at[row], s.size[row], s.owner[s.end] = s.end, size, row
	s.add(s.end, size)
	s.live++
	s.total += size
	return others, known
}

// remove removes a row if it is known.
func (s *stack) remove(row uint32) {
	if int(row) >= len(s.at) || s.at[row] == 0 {
		return
	}
	s.add(s.at[row], -s.size[row])
	s.total -= s.size[row]
	s.live--
	s.at[row] = 0
}

// until returns the total size of the rows at positions 1 to p.
func (s *stack) until(p uint32) (sum int64) {
	for ; p > 0; p &= p - 1 {
		sum += s.tree[p]
	}
	return sum
}

func (s *stack) add(p uint32, size int64) {
	for ; int(p) < len(s.tree); p += p & -p {
		s.tree[p] += size
	}
}

// compact removes positions without a row, and makes the tree at least four times as long as the number of rows.
func (s *stack) compact() {
	to := uint32(0)
	owner := s.owner
	if n := max(1024, 4*s.live); n > len(s.tree) {
		s.tree, s.owner = make([]int64, n), make([]uint32, n)
	}
	clear(s.tree)
	for p := uint32(1); p <= s.end; p++ {
		if row := owner[p]; s.at[row] == p {
			to++
			s.owner[to], s.at[row] = row, to
			s.tree[to] = s.size[row]
		}
	}
	s.end = to
	for p := 1; p < len(s.tree); p++ {
		if up := p + p&-p; up < len(s.tree) {
			s.tree[up] += s.tree[p]
		}
	}
}
