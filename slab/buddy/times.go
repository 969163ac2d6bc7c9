package buddy

// Times are the times that a row takes. Slots and overflow places are read at the same time: the longer of the sums of both counts.
type Times struct {
	// Hit is the seconds of a row without overflow. Overflow returns the seconds of so many bytes in an overflow place, given the bytes from one place to the next.
	Hit      float64
	Overflow func(bytes, place int) float64
}

// A Link is how a GPU reads overflow places. It asks for whole sectors of 32 bytes, at random addresses.
type Link struct {
	// Piece is the seconds of a request, Sector those of each sector.
	Piece, Sector float64
	// A request whose address is not in the GPU's table of translations takes Walk at least. The table covers Reach bytes.
	Walk  float64
	Reach int64
}

const sector = 32

// Measured on an H200 behind PCIe 5 x16. Of host memory: plain gathers of pieces of 16 to 656 bytes in regions of 130 to 350 MB (buddy-overflow of
// docs/results/gpu-bench.json; a test compares them), which leave addresses no part, and of rows in regions of 2 and 16 GB, of which 58 and 31 million a
// second come. Of another GPU: rows of 256 bytes and more at 370 GB/s; shorter pieces are taken for as fast.
const (
	hostLink   = 55e9
	hostPiece  = 0.85e-9
	hostSector = 0.68e-9
	hostWalk   = 34e-9
	hostReach  = 1 << 30
	peerSector = sector / 370e9
)

// HostLink returns how a GPU reads page-locked host memory over a link of so many bytes a second; 0: 55e9, PCIe 5 x16.
func HostLink(link float64) Link {
	if link <= 0 {
		link = hostLink
	}
	return Link{Piece: hostPiece, Sector: hostSector * hostLink / link, Walk: hostWalk, Reach: hostReach}
}

// PeerLink returns how a GPU reads another GPU's memory over NVLink.
func PeerLink() Link { return Link{Sector: peerSector} }

// Seconds returns the time of the first bytes of an overflow place, of which there are rows, place bytes apart.
func (l Link) Seconds(bytes, place int, rows int64) float64 {
	sectors := (bytes + sector - 1) / sector
	n := float64(sectors)
	if place%sector != 0 { // half of the places begin in the middle of a sector
		n = (n + float64((bytes+sector/2+sector-1)/sector)) / 2
	}
	walks := 0.0
	if region := rows * int64(place); region > l.Reach && l.Walk > 0 {
		walks = 1 - float64(l.Reach)/float64(region)
	}
	return max(l.Piece+n*l.Sector, walks*l.Walk)
}

// Times returns the times of a table's rows on a device that has so many of them and reads hits in so many seconds.
func (l Link) Times(hit float64, rows int64) Times {
	return Times{Hit: hit, Overflow: func(bytes, place int) float64 { return l.Seconds(bytes, place, rows) }}
}
