package read

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// places are the places of captured batches that a device of a client has on its board. They are given in blocks of statesCount, as the states are: a
// place, too, has one batch after another only once the device runs nothing more of the block.
type places struct {
	BoardPart
	device  int
	free    chan int // blocks
	leaving atomic.Int32
}

func newPlaces(device int, p BoardPart) *places {
	n := p.Captures / statesCount
	s := &places{BoardPart: p, device: device, free: make(chan int, n)}
	for i := range n {
		s.free <- i
	}
	return s
}

// vacateWait is how long a capture waits for the owner to let places be used again.
const vacateWait = 5 * time.Second

// take returns a block.
func (p *places) take() (block int, err error) {
	select {
	case block = <-p.free:
		return block, nil
	default:
	}
	if p.leaving.Load() > 0 {
		select {
		case block = <-p.free:
			return block, nil
		case <-time.After(vacateWait):
		}
	}
	return 0, fmt.Errorf("%w: captured batches of an attached cache must be at most %d on a device", ErrCapturing, p.Captures/statesCount*statesCount)
}

// leave gives a block back, in the background. REQUIRES: nothing of it runs any more.
func (p *places) leave(block int) {
	p.leaving.Add(1)
	go func() {
		defer p.leaving.Add(-1)
		if p.Vacate(block*statesCount, statesCount) == nil {
			p.free <- block
		} // else there is no owner any more, or the session has ended
	}()
}

// begin gives a captured batch a place, before its replays read anything: place i of a block.
func (p *places) begin(c *capture, block, i int) {
	n := block*statesCount + i
	c.onBoard = p.Board.Capture(p.device*p.Captures + n)
	c.kernel.Board, c.kernel.BoardFrom = p.Board.CaptureIn(p.Memory, p.device*p.Captures+n), c.onBoard.Begin(c.table)
	p.Board.Use(p.device, n+1)
}

// launch enqueues the batch's kernels: on a board, also those which make its replays known there. partly says that some are in the graph, after an
// error, too: then replays use the batch's memory.
func (c *capture) launch(s device.Stream) (partly bool, err error) {
	kernel := device.Kernel(&c.kernel)
	if c.pool != nil && c.part == 0 {
		kernel = c.kernel.Pooled()
	}
	if c.onBoard == nil {
		if err := s.Launch(kernel); err != nil {
			return false, err
		}
		return true, c.enqueueRest(s)
	}
	if err := s.Launch(c.kernel.Begins()); err != nil {
		return false, err
	}
	err = s.Launch(kernel)
	ends := c.kernel.Ends()
	if err != nil { // what begins must end, of no rows
		ends = (&kernels.Replay{State: c.kernel.State, Board: c.kernel.Board, BoardFrom: c.kernel.BoardFrom}).Ends()
	}
	if err = errors.Join(err, s.Launch(ends)); err != nil {
		return true, err
	}
	return true, c.enqueueRest(s)
}
