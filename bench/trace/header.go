package trace

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"
)

// The tct format; docs/format/trace.md describes it.
const (
	blockMagic   = "TCTRACE\n"
	blockVersion = 1
	headerBytes  = 48
	blockMark    = "TCTB"
	endMark      = "TCTE"
	blockHead    = 24
	endBytes     = 20
	// blockRequests is how many requests a writer puts into a block, maxRequests what a reader takes.
	blockRequests = 4096
	maxRequests   = 1 << 16
	// maxPayload is that of maxRequests requests: five columns of at most 10 bytes a value and a byte.
	maxPayload = 5 * (10*maxRequests + 1)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sampling says which accesses a captured trace holds.
type Sampling uint32

// Samplings.
const (
	// All accesses are there.
	All Sampling = iota
	// ByAccess: each access was kept with probability Rate, whatever its ID.
	ByAccess
	// ByID: every access to a share Rate of the IDs, as SHARDS wants.
	ByID
	numSamplings
)

// String returns the sampling's name.
func (s Sampling) String() string {
	return [...]string{"all", "by access", "by ID", "unknown"}[min(s, numSamplings)]
}

// Header is what a tct trace says of itself. The zero value is a trace of all accesses.
type Header struct {
	Sampling Sampling
	// Rate is the share that was kept, above 0 and up to 1. Default 1.
	Rate float64
	// Tick is a unit of Request.Time. 0: it is no time, or not known.
	Tick time.Duration
}

func (h *Header) validate() error {
	if h.Rate == 0 {
		h.Rate = 1
	}
	if h.Sampling >= numSamplings {
		return corrupt("sampling (%d) must be below %d", h.Sampling, numSamplings)
	}
	if !(h.Rate > 0 && h.Rate <= 1) || h.Sampling == All && h.Rate != 1 {
		return corrupt("rate (%v) must be above 0 and up to 1, and 1 for all accesses", h.Rate)
	}
	if h.Tick < 0 {
		return corrupt("tick (%d ns) must not be negative", h.Tick)
	}
	return nil
}

// append appends the header's bytes.
func (h *Header) append(b []byte) []byte {
	from := len(b)
	b = append(b, blockMagic...)
	b = binary.LittleEndian.AppendUint32(b, blockVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Sampling))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(h.Rate))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Tick))
	b = append(b, make([]byte, headerBytes-4-(len(b)-from))...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

func (h *Header) parse(b []byte) error {
	switch {
	case string(b[:8]) != blockMagic:
		return corrupt("first bytes (%q) must be %q", b[:8], blockMagic)
	case crc32.Checksum(b[:headerBytes-4], castagnoli) != binary.LittleEndian.Uint32(b[headerBytes-4:]):
		return corrupt("header's checksum does not match")
	case binary.LittleEndian.Uint32(b[8:]) != blockVersion:
		return corrupt("version (%d) must be %d", binary.LittleEndian.Uint32(b[8:]), blockVersion)
	}
	h.Sampling = Sampling(binary.LittleEndian.Uint32(b[12:]))
	h.Rate = math.Float64frombits(binary.LittleEndian.Uint64(b[16:]))
	h.Tick = time.Duration(binary.LittleEndian.Uint64(b[24:]))
	if h.Rate == 0 {
		return corrupt("rate (0) must be above 0")
	}
	return h.validate()
}
