package pages

import (
	"context"

	"github.com/tensorcache/tensorcache/internal/directio"
)

// Pages are read in windows: so many bytes of buffers are asked for by one call of Store.ReadPages, and so many windows of a table are under
// way at once. They are enough to keep a drive busy.
const (
	windowBytes = 8 << 20
	maxWindows  = 8
)

// windows hands out buffers for the windows of a table.
type windows struct {
	bufferBytes, buffers int
	free                 chan []byte // nil: to be allocated
}

func newWindows(bufferBytes int) *windows {
	w := &windows{bufferBytes: max(bufferBytes, block), free: make(chan []byte, maxWindows)}
	w.buffers = max(1, windowBytes/w.bufferBytes)
	for range maxWindows {
		w.free <- nil
	}
	return w
}

// take waits for a window of at most n buffers and returns them, and the memory to give back.
func (w *windows) take(ctx context.Context, n int) (into [][]byte, memory []byte, err error) {
	select {
	case memory = <-w.free:
	default:
		select {
		case memory = <-w.free:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	n = min(n, w.buffers)
	if len(memory) < n*w.bufferBytes {
		memory = directio.Aligned(n * w.bufferBytes)
	}
	into = make([][]byte, n)
	for i := range into {
		into[i] = memory[i*w.bufferBytes:][:w.bufferBytes:w.bufferBytes]
	}
	return into, memory, nil
}

// give returns a window's memory; nil if it may still be written to.
func (w *windows) give(memory []byte) { w.free <- memory }
