package read

import (
	"sync"

	"github.com/tensorcache/tensorcache/device"
)

// sideStreams are the streams that decode hits beside the reading of misses, for batches on callers' streams: one for each caller's stream, up to maxSides. Batches
// of one stream follow one another, so they need no more. With a stream for each lane, dozens of enqueued batches had as many streams that waited, and the few
// hardware queues that the driver divides streams among were full of them: copies of shared misses then came after the GPU had given them up.
type sideStreams struct {
	mu      sync.Mutex
	of      [maxSides]uintptr // the callers' streams
	streams [maxSides]device.Stream
}

// maxSides is how many callers' streams have one. Batches of further ones have their lanes' own: to share one would have the hits of a stream wait for another's.
const maxSides = 8

// on returns the stream for a caller's stream, or nil if there is none for it.
func (s *sideStreams) on(d device.Device, caller uintptr) device.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, side := range s.streams {
		if side == nil {
			made, err := d.NewStream()
			if err != nil {
				return nil
			}
			s.of[i], s.streams[i] = caller, made
			return made
		}
		if s.of[i] == caller {
			return side
		}
	}
	return nil
}

func (s *sideStreams) close() {
	for _, side := range s.streams {
		if side != nil {
			side.Close()
		}
	}
}

// side returns the stream that decodes the hits of the lane's batch on stream s. A batch that waits for absent rows has its lane's own, so that others do not wait
// behind it.
func (l *lane) side(s device.Stream) device.Stream {
	if caller, ok := s.(interface{ Handle() uintptr }); ok && s != l.stream && !l.route.absent {
		if side := l.owner.sides.on(l.owner.Device, caller.Handle()); side != nil {
			return side
		}
	}
	return l.second
}
