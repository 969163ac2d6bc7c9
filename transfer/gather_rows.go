//go:build !cuda || !linux

package transfer

// gatherRows copies the slot bytes at each of the offsets in mem to dst, back to back.
func gatherRows(dst []byte, slot int, mem []byte, offsets []uint64) {
	for i, at := range offsets {
		if at < uint64(len(mem)) {
			copy(dst[i*slot:][:slot], mem[at:])
		}
	}
}
