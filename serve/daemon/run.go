package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/statefolder"
	"github.com/tensorcache/tensorcache/internal/telemetry"
	"github.com/tensorcache/tensorcache/serve/catalog"
	"github.com/tensorcache/tensorcache/serve/resp"
	"github.com/tensorcache/tensorcache/serve/web"
)

// Program is what Run needs besides the config.
type Program struct {
	// Args are the arguments that SIGHUP reads again.
	Args []string
	// Stdout gets one line when the program is ready. Stderr gets the log.
	Stdout, Stderr io.Writer
	Version        string
}

// running is the program under way.
type running struct {
	Program
	config *Config // of the start, with what SIGHUP has changed: by the goroutine of Run, while it holds changing
	log    *slog.Logger
	level  slog.LevelVar

	observed *telemetry.Telemetry
	tables   *catalog.Catalog
	changing sync.Mutex               // held while tables change; guards caches and configs
	caches   []*cache.Cache           // that are open
	configs  map[*cache.Cache]*Config // with the tables of each
	state    *statefolder.Folder      // --state, which has a folder for each cache; this process alone has it until it ends
	// opened are the tables once they are loaded. serving are the tables while the program takes new work; nil before and after. why is then the reason.
	opened, serving atomic.Pointer[catalog.Catalog]
	why             atomic.Pointer[string]

	// leaving is why /readyz answers 503 although the program serves, nil unless that is so.
	leaving                    atomic.Pointer[string]
	maxPressure                atomic.Uint64 // --max-memory-pressure, as math.Float64bits
	snapshots                  snapshotResults
	changesMade, changesFailed atomic.Int64 // of tables

	started          time.Time
	snapshotInterval atomic.Int64 // nanoseconds
	snapshotChanged  chan struct{}
	snapshotting     sync.Mutex

	resp        *resp.Server
	certificate keptCertificate
	users       atomic.Pointer[resp.Users]
	audit       *slog.Logger // of changes of rows, nil without --audit-log
	web         *web.Handler
	http        *http.Server
	httpConns   *httpConns
	unix        attachments

	life context.Context // ends with the program
	// steady ends when the program begins to end: then tables change no more. unsteady ends it.
	steady   context.Context
	unsteady context.CancelFunc
	tasks    sync.WaitGroup
}

// newCache is replaced by tests.
var newCache = cache.NewContext

// errLoading is the answer to what needs the cache before it is there.
var errLoading = errors.New("tensorcached: loading the tables")

// errEnded says that a signal has ended the loading.
var errEnded = errors.New("ended")

// snapshotWritable returns an error if no snapshot can be written. Otherwise it would be noticed when the program ends, and the rows to begin with would be lost.
func (c *Config) snapshotWritable() error {
	if c.Snapshot == "" {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(c.Snapshot), ".tensorcached-*")
	if err != nil {
		return fmt.Errorf("--snapshot (%s) must be in a folder that can be written to: %w", c.Snapshot, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Run opens the cache and serves it until a signal ends the program. A nil error is a regular end.
func Run(c *Config, p Program) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.snapshotWritable(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(signals)
	life, end := context.WithCancel(context.Background())
	defer end()
	r := &running{Program: p, config: c, life: life, started: time.Now(), snapshotChanged: make(chan struct{}, 1), configs: map[*cache.Cache]*Config{}}
	r.steady, r.unsteady = context.WithCancel(life)
	level, err := c.level()
	if err != nil {
		return err
	}
	r.level.Set(level)
	logged := &slog.HandlerOptions{Level: &r.level}
	if r.log = slog.New(slog.NewTextHandler(p.Stderr, logged)); c.LogFormat == "json" {
		r.log = slog.New(slog.NewJSONHandler(p.Stderr, logged))
	}
	r.unready("loading the tables")
	r.setMaxPressure(c)
	observed, err := telemetry.Start(life, telemetry.Options{Service: "tensorcached", Prometheus: c.HTTP != "", Settings: c.Telemetry, Logger: r.log, Console: p.Stderr})
	if err != nil {
		return err
	}
	r.observed = observed
	defer func() {
		if err := observed.Close(); err != nil { // the program ends well all the same
			r.log.Warn("telemetry not delivered", slog.Any("error", err))
		}
	}()
	// Addresses are looked at first: a program that cannot have them need not load.
	if err := r.unix.free(c); err != nil {
		return err
	}
	onRESP, err := listen("--resp", c.RESP)
	if err != nil {
		return err
	}
	onHTTP, err := listen("--http", c.HTTP)
	if err != nil {
		return errors.Join(err, closed(onRESP))
	}
	if onHTTP != nil { // it answers while the cache is loaded
		if err := r.serveHTTP(onHTTP, observed.Metrics()); err != nil {
			return errors.Join(err, closed(onRESP), onHTTP.Close())
		}
		defer r.web.Close()
		defer r.http.Close()
	}
	measured, err := r.measure()
	if err != nil {
		return errors.Join(err, closed(onRESP))
	}
	defer measured.Unregister()
	defer func() { err = errors.Join(err, r.state.Close()) }()
	if err := r.open(signals); err != nil {
		err = errors.Join(err, closed(onRESP))
		if errors.Is(err, errEnded) {
			r.log.Info("ended while the tables were loaded")
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, r.closeCaches()) }()
	if err := r.serve(onRESP); err != nil {
		return errors.Join(err, closed(onRESP))
	}
	r.watchdog()
	r.every(func() time.Duration { return time.Duration(r.snapshotInterval.Load()) }, r.snapshotChanged, func() { r.snapshot("") })
	r.announce(onRESP, onHTTP)
	for s := range signals {
		for s == syscall.SIGHUP {
			s = r.reloadUntil(signals)
		}
		if s != nil {
			return r.drain(s, signals, end)
		}
	}
	return nil
}

// reloadUntil reloads, which may take as long as tables take to load. It returns a signal that comes meanwhile, nil if none does. One that ends the program ends the
// loading.
func (r *running) reloadUntil(signals <-chan os.Signal) (next os.Signal) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.reload()
	}()
	for {
		select {
		case <-done:
			return next
		case s := <-signals:
			if next = s; s != syscall.SIGHUP {
				r.unsteady()
				<-done
				return s
			}
		}
	}
}

func closed(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

// open loads the caches. A signal to end ends the loading.
func (r *running) open(signals <-chan os.Signal) (err error) {
	if !r.config.Force {
		if err := r.config.fits(); err != nil {
			return err
		}
	}
	// Signals are read while the cache loads: an end ends the loading; a reload waits, as the config was read just now.
	ctx, cancel := context.WithCancel(r.life)
	loaded := make(chan struct{})
	go func() {
		err = r.loadAll(ctx)
		close(loaded)
	}()
	defer cancel()
	for {
		select {
		case <-loaded:
			return err
		case s := <-signals:
			if s != syscall.SIGHUP {
				cancel()
				<-loaded
				r.closeCaches()
				return errEnded
			}
		}
	}
}

// serve makes the loaded cache reachable.
func (r *running) serve(onRESP net.Listener) error {
	c := r.config
	audit, file, err := c.audit()
	if err != nil {
		return err
	}
	r.audit = audit
	context.AfterFunc(r.life, func() { file.Close() })
	if err := r.unix.listen(r); err != nil {
		return err
	}
	if onRESP != nil {
		users, err := c.users()
		if err != nil {
			return errors.Join(err, r.unix.close())
		}
		security, err := r.certificate.security(c)
		if err != nil {
			return errors.Join(err, r.unix.close())
		}
		clients, err := r.respClients()
		if err != nil {
			return errors.Join(err, r.unix.close())
		}
		memory, err := c.respMemory()
		if err != nil {
			return errors.Join(err, r.unix.close())
		}
		o := resp.Options{Tables: r.tables, Users: users, TLS: security, MaxClients: clients, MaxMemory: memory, Stats: r.status, Logger: r.log, Version: r.Version}
		o.IdleTime, o.Audit = c.RESPTimeout, r.audit
		if r.resp, err = resp.New(o); err != nil {
			return errors.Join(err, r.unix.close())
		}
		r.tasks.Go(func() {
			if err := r.resp.Serve(onRESP); err != nil {
				r.log.Error("--resp serves no further clients", slog.Any("error", err))
			}
		})
	}
	r.snapshotInterval.Store(int64(c.SnapshotInterval))
	r.opened.Store(r.tables)
	r.serving.Store(r.tables)
	return nil
}

func (r *running) serveHTTP(l net.Listener, metrics http.Handler) error {
	c := r.config
	_, remote, err := address("--http", c.HTTP)
	if err != nil {
		return err
	}
	token, err := c.token()
	if err != nil {
		return err
	}
	users, err := c.users()
	if err != nil {
		return err
	}
	r.users.Store(&users)
	login := func(name string, password []byte) bool { return r.users.Load().Login(name, password) }
	r.web, err = web.New(web.Options{Login: login, Tables: r.current, Ready: r.ready, Latency: r.latency, Stats: r.status, Metrics: metrics, Token: token, AnyHost: remote, Profiles: !remote, Logger: r.log})
	if err != nil {
		return err
	}
	r.http, r.httpConns = newHTTPServer(r.web, r.log)
	go r.http.Serve(l) // it ends by Close
	return nil
}

// current returns the tables while they are served.
func (r *running) current() (*catalog.Catalog, error) {
	if c := r.serving.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("tensorcached: " + *r.why.Load())
}

// unready has the program say that it does not serve, and why.
func (r *running) unready(why string) {
	r.why.Store(&why)
	r.serving.Store(nil)
}

// announce prints the line that says that the program is ready, and tells systemd.
func (r *running) announce(onRESP, onHTTP net.Listener) {
	line := fmt.Sprintf("tensorcached %s ready after %.1f s:", r.Version, time.Since(r.started).Seconds())
	if s, err := r.tables.Stats(); err == nil {
		line += fmt.Sprintf(" %s of %s rows cached in %s of %s", humanize.Comma(s.CachedRows), humanize.Comma(s.Rows), humanize.IBytes(uint64(s.BudgetBytes)), s.Devices[0].Backend)
	}
	if r.config.Listen != "" {
		line += ", " + r.config.Listen
	}
	if onRESP != nil {
		line += ", resp " + onRESP.Addr().String()
	}
	if onHTTP != nil {
		line += ", http://" + onHTTP.Addr().String() + "/"
	}
	fmt.Fprintln(r.Stdout, line)
	r.notify(daemon.SdNotifyReady, "STATUS="+line)
}

// every calls f in the background until the program ends, with an interval between the calls; 0: never. changed, if not nil, says that the interval has
// changed.
func (r *running) every(interval func() time.Duration, changed <-chan struct{}, f func()) {
	r.tasks.Go(func() {
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		for {
			var due <-chan time.Time
			if d := interval(); d > 0 {
				timer.Reset(d)
				due = timer.C
			}
			select {
			case <-r.life.Done():
				return
			case <-changed:
			case <-due:
				f()
			}
		}
	})
}

// snapshot writes a snapshot to a file, by default the one that is configured.
func (r *running) snapshot(path string) error {
	if path == "" {
		path = r.config.Snapshot
	}
	if path == "" {
		return errors.New("snapshot: --file must be given: tensorcached runs without --snapshot")
	}
	r.snapshotting.Lock()
	defer r.snapshotting.Unlock()
	var errs []error
	for i, c := range r.tables.View().Caches {
		to := path
		if i > 0 { // as the config of a table that is alone has it
			s, err := c.Stats()
			if err != nil {
				continue // it has been replaced or dropped
			}
			to += "." + url.PathEscape(s.Tables[0].Name)
		}
		if err := c.Snapshot(to); !errors.Is(err, cache.ErrClosed) {
			errs = append(errs, err)
		}
	}
	err := errors.Join(errs...)
	if path == r.config.Snapshot {
		r.snapshots.note(err)
	}
	if err != nil {
		r.log.Error("snapshot failed", slog.Any("error", err))
	}
	return err
}

// drain ends the program.
func (r *running) drain(s os.Signal, signals <-chan os.Signal, end func()) error {
	r.log.Info("ending", slog.String("signal", s.String()))
	r.unsteady()
	r.leave("ending")
	r.notify(daemon.SdNotifyStopping, "STATUS=ending")
	ended := make(chan error, 1)
	go func() {
		if r.http != nil { // somebody may look at /readyz
			time.Sleep(r.config.LameDuck)
		}
		r.unready("ending")
		ctx, cancel := context.WithTimeout(r.life, r.config.DrainTimeout)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { r.cutOff("changes by attached processes", r.unix.finish(ctx)) })
		if r.resp != nil {
			wg.Go(func() { r.cutOff("clients of --resp", r.resp.Close(ctx)) })
		}
		wg.Wait()
		var err error
		if r.config.Snapshot != "" {
			err = r.snapshot("")
		}
		if r.http != nil { // /healthz answers until the end
			ctx, cancel := context.WithTimeout(r.life, max(time.Second, r.config.DrainTimeout))
			r.cutOff("requests of --http", r.http.Shutdown(ctx))
			cancel()
		}
		end()
		r.tasks.Wait()
		ended <- errors.Join(err, r.unix.close())
	}()
	for {
		select {
		case err := <-ended:
			if err == nil {
				r.log.Info("ended")
			}
			return err
		case s := <-signals:
			if s != syscall.SIGHUP {
				r.log.Error("ended at once", slog.String("signal", s.String()))
				os.Exit(1) // work under way may hold what a regular end waits for
			}
		}
	}
}

// errors says what went wrong in the background besides what the cache says.
func (r *running) errors() map[string]string {
	if lost := r.observed.Losses().String(); lost != "" {
		return map[string]string{"telemetry": lost}
	}
	return nil
}

// cutOff logs what did not end in time.
func (r *running) cutOff(who string, err error) {
	if err != nil {
		r.log.Warn("cut off", slog.String("what", who), slog.Any("error", err))
	}
}
