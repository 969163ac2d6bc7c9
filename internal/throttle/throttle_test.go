package throttle

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLogins_Rate: guesses over many connections are answered at 16 a second, and right passwords are not delayed, whether of their address or another.
func TestLogins_Rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Logins
		var answered atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if l.Try(ctx, fmt.Sprintf("10.0.0.1:%d", i+1), func() bool { return false }) {
						t.Error("a wrong login is right")
					}
					answered.Add(1)
				}
			})
		}
		time.Sleep(time.Minute)
		for _, from := range []string{"10.0.0.1:999", "10.0.0.2:1"} {
			begun := time.Now()
			if !l.Try(ctx, from, func() bool { return true }) || time.Since(begun) != 0 {
				t.Errorf("a right login from %s took %v", from, time.Since(begun))
			}
		}
		cancel()
		wg.Wait()
		if n := answered.Load(); n < 16*50 || n > 16*65+100 || l.Failed() != n { // 100 waited when ctx ended
			t.Errorf("%d guesses were answered in a minute, %d counted", n, l.Failed())
		}
	})
}

// TestLogins_Delay: it grows to a second, and is forgotten after a minute.
func TestLogins_Delay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Logins
		wrong := func() time.Duration {
			begun := time.Now()
			l.Try(t.Context(), "[2001:db8::1]:7", func() bool { return false })
			return time.Since(begun)
		}
		var all []time.Duration
		for range 12 {
			all = append(all, wrong())
		}
		const want = "[2ms 4ms 8ms 16ms 32ms 64ms 128ms 256ms 512ms 1s 1s 1s]"
		if got := fmt.Sprint(all); got != want {
			t.Errorf("delays %s, want %s", got, want)
		}
		begun := time.Now()
		if !l.Try(t.Context(), "[2001:db8::1]:8", func() bool { return true }) || time.Since(begun) != 0 {
			t.Error("a right login is delayed")
		}
		time.Sleep(forget + time.Second)
		if d := wrong(); d != 2*time.Millisecond {
			t.Errorf("the first failure after a minute took %v", d)
		}
	})
}

// TestLogins_Addresses: what is remembered is bounded, and addresses that are forgotten make room.
func TestLogins_Addresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Logins
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		flood := func(network int) {
			for i := range 3 * mostAddresses {
				l.Try(ended, fmt.Sprintf("%d.0.%d.%d:1", network, i>>8, i&255), func() bool { return false })
			}
		}
		flood(10)
		if n := len(l.mu.from); n != mostAddresses {
			t.Errorf("%d addresses are remembered", n)
		}
		time.Sleep(forget + time.Second)
		flood(11)
		if n := len(l.mu.from); n != mostAddresses {
			t.Errorf("%d addresses are remembered after a minute", n)
		}
	})
}

func TestPrefix(t *testing.T) {
	for text, want := range map[string]string{"10.1.2.3:4": "10.1.2.3/32", "[::ffff:10.1.2.3]:4": "10.1.2.3/32", "[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[fe80::1%eth0]:5": "fe80::/64"} {
		if got := prefix(text).String(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := prefix("@"); got.IsValid() {
		t.Errorf("a path: %v", got)
	}
}

func TestLog_Interval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		to := slog.New(slog.NewTextHandler(&b, nil))
		var l Log
		for i := range 1000 {
			l.Record(to, slog.LevelWarn, "it failed", slog.Int("i", i))
		}
		time.Sleep(logInterval)
		l.Record(to, slog.LevelWarn, "it failed", slog.Int("i", 1000))
		if got := b.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "i=0\n") || !strings.Contains(got, "i=1000 omitted=999\n") {
			t.Errorf("the log has\n%s", got)
		}
	})
}
