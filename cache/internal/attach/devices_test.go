package attach

import (
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// TestNumbersHere: the owner's GPUs are found under any number, unless they are lost. If none is left, the error says so.
func TestNumbersHere(t *testing.T) {
	t.Parallel()
	of := []wire.Device{{Kind: "cuda", Name: "H200", Address: "0000:1B:00.0"}, {Kind: "cuda", Name: "H200", Address: "0000:2c:00.0"}}
	have := []cuda.GPU{{Index: 0, PCIBusID: "0000:2C:00.0"}, {Index: 1, PCIBusID: "0000:0A:00.0"}, {Index: 2, PCIBusID: "0000:1b:00.0"}}
	sound := []bool{false, false}
	if got, err := numbersHere(of, sound, have); err != nil || !slices.Equal(got, []int{2, 0}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := numbersHere(of, sound, have[:2]); err != nil || !slices.Equal(got, []int{-1, 0}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := numbersHere(of, []bool{true, false}, have); err != nil || !slices.Equal(got, []int{-1, 0}) {
		t.Errorf("with a lost GPU: %v, %v", got, err)
	}
	if got, err := numbersHere(of, []bool{true, true}, have); err == nil {
		t.Errorf("with lost GPUs only: %v", got)
	}
	_, err := numbersHere(of, sound, have[1:2])
	for _, want := range []string{"owner's GPUs ([{cuda H200 0000:1B:00.0} {cuda H200 0000:2c:00.0}]) must not all be out of sight of this process, which sees 1", "CUDA_VISIBLE_DEVICES"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v must contain %q", err, want)
		}
	}
}
