package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress_SaysHowLong: a stage is shown at once, and goes on being shown while nothing is heard of it.
func TestProgress_SaysHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clear = "\r\x1b[K"
		var out bytes.Buffer
		p := &progress{terminal: &out}
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			if out.String() != want {
				t.Errorf("got %q, want %q", out.String(), want)
			}
			out.Reset()
		}
		p.Stage("loading", 0)
		expect("loading")
		time.Sleep(1100 * time.Millisecond)
		expect(clear + "loading, 1s" + clear + "loading, 1s")
		p.Stage("measuring", 3)
		expect(clear + "measuring 0/3")
		p.Step() // too early to draw
		expect("")
		time.Sleep(drawAfter + time.Millisecond)
		p.Step()
		expect(clear + "measuring 2/3")
		p.close()
		time.Sleep(time.Hour)
		expect(clear)
	})
}
