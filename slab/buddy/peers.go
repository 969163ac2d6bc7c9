package buddy

// Peers returns, for each device, the one in whose memory the overflow places of its rows are to lie, so many bytes for each device. That is another
// device, the one with the most room, or, where no other has enough, the device itself. It takes the bytes from room, which has those that are free on
// each device. ok is false, and room as it was, if there is no room for all.
func Peers(bytes int64, room []int64) (peers []int, ok bool) {
	for d := range room {
		best := -1
		for i := range room { // from the next device on, so that equal devices take each other's places in a circle
			p := (d + 1 + i) % len(room)
			if room[p] >= bytes && (best < 0 || p != d && room[p] > room[best]) {
				best = p
			}
		}
		if best < 0 {
			for _, p := range peers {
				room[p] += bytes
			}
			return nil, false
		}
		room[best] -= bytes
		peers = append(peers, best)
	}
	return peers, true
}
