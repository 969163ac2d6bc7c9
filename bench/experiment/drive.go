package experiment

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/internal/faults"
)

// Drive is what a drive or a cluster below host memory delivers, as flags say it. The zero value is one of which nothing is known.
type Drive struct {
	// Bandwidth is the bytes that are read a second, as a size with its unit, such as "3GB/s"; "": not known.
	Bandwidth string
	// Reads is how many pages are read a second if many are asked for at once, 0: not known.
	Reads float64
	// Latency is how long one read takes.
	Latency time.Duration
}

// Validate reports every field out of range. Fields go by the names of their flags.
func (d *Drive) Validate(f *faults.List) {
	_, err := d.bytes()
	f.Add(err)
	f.If(!(d.Reads >= 0) || math.IsInf(d.Reads, 0), "--cold-reads-per-second (%v) must be a number that is not negative", d.Reads)
	f.If(d.Latency < 0, "--cold-latency (%v) must not be negative", d.Latency)
}

// bytes returns Bandwidth in bytes a second, 0 if it is not known.
func (d *Drive) bytes() (float64, error) {
	if d.Bandwidth == "" {
		return 0, nil
	}
	size := strings.TrimSuffix(d.Bandwidth, "/s")
	n, err := humanize.ParseBytes(size)
	if _, bare := strconv.ParseFloat(size, 64); err != nil || n == 0 || n > math.MaxInt64/2 || bare == nil {
		return 0, fmt.Errorf("--cold-bandwidth (%q) must be bytes a second with a unit, such as 3GB/s", d.Bandwidth)
	}
	return float64(n), nil
}

// Known says whether anything is known of the drive.
func (d *Drive) Known() bool { return *d != Drive{} }

// Seconds is how long it takes to read so many pages of so many bytes together, all asked for at once: what takes longer of bytes and reads, and the latency of one. REQUIRES:
// d is valid.
func (d *Drive) Seconds(bytes, reads float64) float64 {
	if reads == 0 {
		return 0
	}
	seconds := 0.0
	if bandwidth, _ := d.bytes(); bandwidth > 0 {
		seconds = bytes / bandwidth
	}
	if d.Reads > 0 {
		seconds = max(seconds, reads/d.Reads)
	}
	return d.Latency.Seconds() + seconds
}
