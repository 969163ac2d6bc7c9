package read

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// places are the places for captured batches that a device of a client has on its board. They are given in blocks of
// statesCount, as the states in device memory are. A block is given again only when the device runs nothing more that
// counts in it.
type places struct {
	BoardPart
	device  int
	free    chan int // free blocks
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

// vacateWait is how long a capture waits for the owner to free a block.
const vacateWait = 5 * time.Second

// take returns a free block.
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

// leave gives a block back, in the background. REQUIRES: no replay that counts in it runs or will run.
func (p *places) leave(block int) {
	p.leaving.Add(1)
	go func() {
		defer p.leaving.Add(-1)
		if p.Vacate(block*statesCount, statesCount) == nil {
			p.free <- block
		} // else the owner has gone, or the session has ended
	}()
}

// begin gives a captured batch place i of a block. REQUIRES: no replay of the batch has begun.
func (p *places) begin(c *capture, block, i int) {
	n := block*statesCount + i
	c.onBoard = p.Board.Capture(p.device*p.Captures + n)
	c.kernel.Board, c.kernel.BoardFrom = p.Board.CaptureIn(p.Memory, p.device*p.Captures+n), c.onBoard.Begin(c.table)
	p.Board.Use(p.device, n+1)
}

// launch enqueues the batch's kernels. In a client, that includes those that announce its replays on the board.
// partly says that kernels are in the graph, which may be so after an error, too. Then replays use the batch's
// memory.
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
	if err != nil { // what begins must end, with no rows counted
		ends = (&kernels.Replay{State: c.kernel.State, Board: c.kernel.Board, BoardFrom: c.kernel.BoardFrom}).Ends()
	}
	if err = errors.Join(err, s.Launch(ends)); err != nil {
		return true, err
	}
	return true, c.enqueueRest(s)
}
