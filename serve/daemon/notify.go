package daemon

import (
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notify tells systemd of a state. It does nothing if systemd has not started the program.
func (r *running) notify(states ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil {
		r.log.Warn("systemd was not told", slog.Any("error", err))
	}
}

// watchdog tells systemd that the program lives, if it asks for that, while the cache answers.
func (r *running) watchdog() {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		r.log.Warn("no watchdog", slog.Any("error", err))
	}
	if err != nil || interval == 0 {
		return
	}
	r.every(func() time.Duration { return interval / 2 }, nil, func() {
		if _, err := r.tables.Stats(); err != nil {
			r.log.Error("the watchdog is not fed", slog.Any("error", err))
			return
		}
		r.notify(daemon.SdNotifyWatchdog)
	})
}
