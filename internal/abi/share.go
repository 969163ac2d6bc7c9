package abi

import "sync/atomic"

// LastTimes returns how the share went that ended last; false where none has or one is ending just now.
func (h *ShareHost) LastTimes() (t ShareTimes, ok bool) {
	closed := atomic.LoadUint32(&h.Closed)
	from := &h.Times
	t = ShareTimes{
		Stamp: atomic.LoadUint32(&from.Stamp), Tier: atomic.LoadUint32(&from.Tier), Misses: atomic.LoadUint32(&from.Misses),
		Staged: atomic.LoadUint32(&from.Staged), Taken: atomic.LoadUint32(&from.Taken), GaveUp: atomic.LoadUint32(&from.GaveUp),
		OwnNanos: atomic.LoadUint64(&from.OwnNanos), HostNanos: atomic.LoadUint64(&from.HostNanos), Nanos: atomic.LoadUint64(&from.Nanos),
	}
	return t, closed != 0 && t.Stamp == closed && atomic.LoadUint32(&from.Stamp) == closed
}

// CountWord is a count of a share's pieces with its number beside it: ShareDevice.Arrived, ShareHost.Claimed.
func CountWord(number, pieces uint32) uint32 { return number<<12 | pieces }

// Counted returns the count of such a word, 0 if it is another share's.
func Counted(word, number uint32) uint32 {
	if word>>12 == number&0xfffff {
		return word & 0xfff
	}
	return 0
}
