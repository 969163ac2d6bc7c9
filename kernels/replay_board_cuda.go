//go:build cuda && linux

package kernels

import (
	"errors"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	replayBoard  = module("replayBoard")
	replayBegins = cuda.NewFunction[abi.ReplayBoardArgs](replayBoard, "replayBegins")
	replayEnds   = cuda.NewFunction[abi.ReplayBoardArgs](replayBoard, "replayEnds")
)

// RunCUDA implements cuda.Kernel.
func (k *replayNotice) RunCUDA(s *cuda.Stream) error {
	if k.of.Board.Size() == 0 {
		return errors.Join(replayBegins.Load(s.Device()), replayEnds.Load(s.Device()))
	}
	f, args := replayBegins, k.args()
	if k.ends {
		f = replayEnds
	}
	return f.Launch(s, 1, 32, 0, &args)
}
