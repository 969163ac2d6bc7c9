package attach

import (
	"errors"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// A device is lost when the owner says so, or when it fails in this process. Batches then use another one. The owner has clients pause while it
// withdraws the rows of a lost device, because reading them might make other devices fail too.

// loseLocked gives up the devices that are lost in a layout, and pauses if it says so.
func (s *Session) loseLocked(l *wire.Layout) {
	lost := false
	for i, d := range l.Devices {
		lost = lost || d.Lost != "" && !s.Set.Devices[i].IsGone()
	}
	if !lost && !l.Paused {
		return
	}
	pausedHere := s.pauseLocked()
	for i, d := range l.Devices {
		if d.Lost != "" {
			s.Set.Devices[i].SetLost(lostBy(d.Lost))
		}
	}
	if pausedHere && !l.Paused {
		s.resumeLocked()
	}
}

// lostBy is the error of a device with which it has failed in the owner.
func lostBy(why string) error { return errors.New("the owner has lost it: " + why) }

// lose is read.Set.Lose: it gives up a device that has failed in this process.
func (s *Session) lose(d *read.Device) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Set.OthersWork(d) {
		return false
	}
	pausedHere := s.pauseLocked()
	d.SetLost(d.Device.Err())
	if pausedHere {
		s.resumeLocked()
	}
	return true
}

// pauseLocked keeps batches from beginning. It returns false if they are kept already.
func (s *Session) pauseLocked() bool {
	if s.mu.resume != nil || s.mu.goesOn {
		return false
	}
	s.mu.resume = s.Set.Pause()
	return s.mu.resume != nil
}

func (s *Session) resumeLocked() {
	if s.mu.resume != nil {
		s.mu.resume()
		s.mu.resume = nil
	}
}

// Resume lets batches begin for good. Nobody else does if the owner has ended meanwhile, or hangs.
func (s *Session) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.goesOn = true
	s.resumeLocked()
}
