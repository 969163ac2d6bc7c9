package transfer

import (
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/internal/abi"
)

// split learns the fraction of a table's misses that the host's processors should gather, so that host and device finish at the
// same time. The zero value has learned nothing. Not safe for concurrent use.
//
// The speeds of both sides in a shared batch give the odds, host misses to device misses, at which both would have finished
// together. The median of the last odds is used for the next batch. A median ignores batches in which the system preempted a
// thread, which say little about the next one. The odds change the measured speeds, because the host's start-up takes longer
// than a small part of the misses; the iteration converges from either side all the same.
type split struct {
	odds   [splitRecent]float64 // logarithms of the last odds, a ring buffer
	learnt int                  // number of odds recorded
	gaveUp bool                 // in the last batch the device timed out waiting for the host
}

const (
	splitRecent = 5
	splitLeast  = 0.05 // the host's least fraction, so that its speed is still measured
	splitMost   = 0.95
)

// fraction returns the host's fraction of the next batch's misses.
func (s *split) fraction() float64 {
	n := min(s.learnt, splitRecent)
	if n == 0 {
		return shareBeginsAt
	}
	odds := s.odds
	slices.Sort(odds[:n])
	return min(splitMost, max(splitLeast, 1/(1+math.Exp(-odds[n/2]))))
}

// learn adds the times of a shared batch that has ended.
func (s *split) learn(t abi.ShareTimes) {
	before := s.gaveUp
	s.gaveUp = t.GaveUp != 0
	if s.gaveUp && !before {
		return // probably a preempted thread: ignored unless it happens again
	}
	s.odds[s.learnt%splitRecent] = math.Log(evenOdds(t))
	s.learnt++
}

// evenOdds returns the odds at which both sides of a shared batch would have finished together at their measured speeds.
// Misses that the device took over from the host count as the device's.
func evenOdds(t abi.ShareTimes) float64 {
	host, device := float64(t.Staged), float64(t.Misses)-float64(t.Staged)
	if t.GaveUp == 0 && t.HostNanos != 0 && t.OwnNanos != 0 {
		host, device = host/float64(t.HostNanos), device/float64(t.OwnNanos)
	} // else the times are unknown, and the numbers of misses are used
	const most = splitMost / (1 - splitMost)
	if device <= 0 {
		return most
	}
	return min(most, max(1/most, host/device))
}
