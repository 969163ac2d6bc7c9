// Package memlimit says how much more memory this process may use, and refuses work that needs more, before the system ends the
// process. It knows the limits of Linux; elsewhere nothing is known and nothing refused. Swap does not count. Safe for concurrent use.
package memlimit

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
)

// Limit is memory that the process may still take.
type Limit struct {
	Bytes int64
	// From says what limits it, such as "cgroup memory limit".
	From string
}

// Free returns the tightest of the limits of control groups (v2 and v1), RLIMIT_AS, RLIMIT_DATA and the memory that the system has
// available, each less what is used already. known is false if none could be read.
func Free() (l Limit, known bool) {
	l.Bytes = math.MaxInt64
	for _, other := range limits() {
		if known = true; other.Bytes < l.Bytes {
			l = Limit{max(0, other.Bytes), other.From}
		}
	}
	return l, known
}

// Need is memory that a setting leads to.
type Need struct {
	// Setting and Value name it, such as --vertices and 500000.
	Setting string
	Value   any
	Bytes   float64
}

// Check returns an error, which names the largest of the needs, if their sum exceeds Free.
func Check(needs ...Need) error {
	free, known := Free()
	sum, largest := 0.0, Need{}
	for _, n := range needs {
		if sum += n.Bytes; n.Bytes > largest.Bytes {
			largest = n
		}
	}
	if !known || sum <= float64(free.Bytes) {
		return nil
	}
	of := ""
	if sum > 1.01*largest.Bytes {
		of = fmt.Sprintf(" (%s with the rest)", size(sum))
	}
	return fmt.Errorf("%s (%v) needs about %s of memory%s, and this process may take %s (%s): lower it, or go on with --force",
		largest.Setting, largest.Value, size(largest.Bytes), of, size(float64(free.Bytes)), free.From)
}

func size(bytes float64) string { return humanize.Bytes(uint64(min(bytes, 1e18))) }
