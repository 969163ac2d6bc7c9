package attach

import (
	"errors"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// A device that this process does not see is lost when the owner says so, with the owner's reason: until then its memory is read. The first reason stays.
func TestSession_LosesHiddenDevices(t *testing.T) {
	t.Parallel()
	s := &Session{Set: read.NewSet(host.Open(2, 1), read.Sampling{}, read.DefaultTuning())}
	d := s.Set.Devices[1]
	s.mu.Lock()
	defer s.mu.Unlock()
	d.SetHidden(errHidden)
	says := func(why string, gone bool, want string) {
		t.Helper()
		s.loseLocked(&wire.Layout{Devices: []wire.DeviceView{{}, {Lost: why}}})
		if err := d.LostError(); !errors.Is(err, read.ErrDevice) || !strings.Contains(err.Error(), want) || !d.IsLost() || d.IsGone() != gone || s.Set.Devices[0].IsLost() {
			t.Errorf("%q: %v, lost %v, gone %v", why, err, d.IsLost(), d.IsGone())
		}
	}
	says("", false, errHidden.Error())
	says("ECC error", true, "the owner has lost it: ECC error")
	says("another", true, "the owner has lost it: ECC error")
	if s.mu.resume != nil {
		t.Error("batches are still kept from beginning")
	}
}
