package transfer

import (
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/internal/abi"
)

// split learns which part of a table's misses the host's processors are to gather: that with which both sides end at once. The
// zero value knows nothing. Not safe for concurrent use.
//
// How fast either side was in a share says at which odds, the host's misses to the device's, both would have ended together;
// the next share is split so. That moves what is seen too, as the host's start takes longer than a small part does, but
// towards the same point from either side. The median of the last shares counts, not a mean: a share in which the system
// put a thread aside says little of the next one, and a part that is too small costs as much as it is off.
type split struct {
	odds   [splitRecent]float64 // logarithms, a ring
	learnt int                  // shares that are or were in it
	gaveUp bool                 // the device gave up waiting in the last share
}

const (
	splitRecent = 5
	splitLeast  = 0.05 // of the misses, or nothing would be seen of the host any more
	splitMost   = 0.95
)

// fraction returns the host's part of the next share's misses.
func (s *split) fraction() float64 {
	n := min(s.learnt, splitRecent)
	if n == 0 {
		return shareBeginsAt
	}
	odds := s.odds
	slices.Sort(odds[:n])
	return min(splitMost, max(splitLeast, 1/(1+math.Exp(-odds[n/2]))))
}

// learn takes in the times of a share that has ended.
func (s *split) learn(t abi.ShareTimes) {
	before := s.gaveUp
	s.gaveUp = t.GaveUp != 0
	if s.gaveUp && !before {
		return // a thread was put aside: unless that happens again it says nothing
	}
	s.odds[s.learnt%splitRecent] = math.Log(evenOdds(t))
	s.learnt++
}

// evenOdds returns the odds with which both sides of a share would have ended at once, were they as fast as they were. What the
// device took over of the host's part while it waited for nothing is its own.
func evenOdds(t abi.ShareTimes) float64 {
	host, device := float64(t.Staged), float64(t.Misses)-float64(t.Staged)
	if t.GaveUp == 0 && t.HostNanos != 0 && t.OwnNanos != 0 {
		host, device = host/float64(t.HostNanos), device/float64(t.OwnNanos)
	} // else who took how long is not known: what they did counts
	const most = splitMost / (1 - splitMost)
	if device <= 0 {
		return most
	}
	return min(most, max(1/most, host/device))
}
