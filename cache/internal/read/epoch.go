package read

import (
	"context"
	"time"
)

// pollEpoch is how often a waiting writer asks the device for batches that nobody waits for.
const pollEpoch = 200 * time.Microsecond

// WaitEpoch waits until every batch that has begun on any device has ended, including replays of captured graphs and
// batches of other processes. It also waits until other processes read by the views that are set now, and until none reads by those of an earlier owner.
func (s *Set) WaitEpoch(ctx context.Context) error {
	type batch struct {
		lane *lane
		n    uint64
	}
	s.fence.Add(1) // orders the stores that withdrew something before the loads of the lanes' words
	for _, d := range s.Devices {
		var running []batch
		for i := range d.lanes {
			if l := d.lanes[i].Load(); l != nil {
				if n := l.words.Running(); n != 0 {
					running = append(running, batch{l, n})
				}
			}
		}
		for _, b := range running {
			for !b.lane.words.Passed(b.n) {
				changed := d.progress.wait()
				if b.lane.words.Passed(b.n) {
					d.progress.done()
					break
				}
				d.SettleFinished()
				d.settleFailed()
				select {
				case <-changed:
				case <-time.After(pollEpoch):
				case <-ctx.Done():
					d.progress.done()
					return ctx.Err()
				}
				d.progress.done()
			}
		}
		replays, err := d.replaysNow()
		if err != nil {
			return d.OrLost(err)
		}
		for !d.ended(replays) {
			select {
			case <-time.After(pollEpoch):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if r := s.Readers(); r != nil {
		if err := r.Wait(ctx); err != nil {
			return err
		}
	}
	return s.Kept.Wait(ctx)
}
