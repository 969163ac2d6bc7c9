package mrc

// stack finds stack distances. Each row's last access has a position; a Fenwick tree over the positions has the rows'
// sizes.
type stack struct {
	tree  []int64  // sums; tree[0] is unused
	owner []uint32 // the row at each position, from 1 on
	at    []uint32 // each row's position, 0: none
	size  []int64  // each row's
	end   uint32   // the last position in use
	live  int
	total int64
}

// access returns the size of the other rows accessed since the row was, and whether it was at all; and makes it the latest.
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

// remove forgets a row, if it is known.
func (s *stack) remove(row uint32) {
	if int(row) >= len(s.at) || s.at[row] == 0 {
		return
	}
	s.add(s.at[row], -s.size[row])
	s.total -= s.size[row]
	s.live--
	s.at[row] = 0
}

// until returns the size of the rows up to a position.
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

// compact takes positions without a row out, and makes the tree so large that this happens once in three times the rows.
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
