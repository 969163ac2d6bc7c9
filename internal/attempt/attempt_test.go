package attempt

import (
	"errors"
	"testing"
)

func TestTry(t *testing.T) {
	broken := errors.New("broken")
	went := false
	if err := Try(func() { Must(nil); Get(1, broken); went = true }); err != broken || went {
		t.Errorf("got %v, went on: %v", err, went)
	}
	if err := Try(func() { went = Get(true, nil) }); err != nil || !went {
		t.Errorf("got %v", err)
	}
	defer func() {
		if p := recover(); p != "other" {
			t.Errorf("another panic: %v", p)
		}
	}()
	Try(func() { panic("other") })
}
