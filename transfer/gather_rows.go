//go:build !cuda || !linux

package transfer

// gatherPieces gathers up to so many pieces; false says that there were fewer.
func (s *Sharer) gatherPieces(limit int) bool {
	for ; limit > 0 && s.gather(); limit-- {
	}
	return limit == 0
}

// gatherRows copies the first slot bytes of each row that begins at one of the offsets in mem to dst, back to back.
func gatherRows(dst []byte, slot int, mem []byte, offsets []uint64) {
	for i, at := range offsets {
		if at < uint64(len(mem)) {
			copy(dst[i*slot:][:slot], mem[at:])
		}
	}
}
