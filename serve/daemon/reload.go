package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/cache"
)

// reload reads the configuration again and changes what can change. If the new one is wrong, nothing changes.
func (r *running) reload() {
	r.notify(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
	defer r.notify(daemon.SdNotifyReady)
	next, err := Load(r.Args)
	if err == nil {
		err = next.Validate()
	}
	if err != nil {
		r.log.Error("not reloaded: the configuration is wrong, and the old one stays", slog.Any("error", err))
		return
	}
	changed, fixed := r.config.differences(next)
	for _, name := range fixed {
		r.log.Warn("not reloaded: this takes a restart", slog.String("flag", "--"+name), slog.String("is", value(r.config, name)), slog.String("should_be", value(next, name)))
	}
	var done []string
	for _, change := range []struct {
		flags []string
		do    func(*Config) error
	}{
		{[]string{"table"}, r.reloadTables},
		{[]string{"log-level"}, r.setLevel},
		{[]string{"drain-timeout", "lame-duck"}, func(*Config) error { return nil }},
		{[]string{"max-memory-pressure"}, r.setMaxPressure},
		{[]string{"snapshot-interval"}, r.setSnapshots},
		{[]string{"refresh-interval", "refresh-churn", "refresh-bytes"}, r.setRefresh},
		{[]string{"policy"}, r.setPolicy},
		{[]string{"gpu-memory"}, r.setBudget},
	} {
		of := slices.DeleteFunc(slices.Clone(change.flags), func(name string) bool { return !slices.Contains(changed, name) })
		if len(of) == 0 {
			continue
		}
		if err := change.do(next); err != nil {
			r.log.Error("not reloaded", slog.String("flags", strings.Join(of, ", ")), slog.Any("error", err))
			continue
		}
		r.changing.Lock() // commands that change tables read the config
		for _, name := range of {
			if name != "table" {
				r.config.set.Set(name, value(next, name))
			}
		}
		r.changing.Unlock()
		done = append(done, of...)
	}
	r.reloadSecrets(next)
	r.log.Info("reloaded", slog.String("changed", strings.Join(done, ", ")))
}

// value returns the value of a flag as text; of --table all tables, those of --features among them.
func value(c *Config, name string) string {
	if name != "table" {
		return c.set.Lookup(name).Value.String()
	}
	var all []string
	for i := range c.Tables {
		all = append(all, c.Tables[i].String())
	}
	return strings.Join(all, " ")
}

// differences returns the flags that have other values in next: those that can change while the program runs, and the others.
func (c *Config) differences(next *Config) (changed, fixed []string) {
	next.set.VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Name == "features" || f.Name == "table" || f.Hidden || c.set.Lookup(f.Name) == nil || value(c, f.Name) == f.Value.String():
		case reloadable[f.Name]:
			changed = append(changed, f.Name)
		default:
			fixed = append(fixed, f.Name)
		}
	})
	if !slices.Equal(c.Tables, next.Tables) {
		changed = append(changed, "table")
	}
	return changed, fixed
}

func (r *running) setLevel(c *Config) error {
	level, err := c.level()
	if err == nil {
		r.level.Set(level)
	}
	return err
}

func (r *running) setMaxPressure(c *Config) error {
	r.maxPressure.Store(math.Float64bits(c.MaxPressure))
	return nil
}

func (r *running) setSnapshots(c *Config) error {
	r.snapshotInterval.Store(int64(c.SnapshotInterval))
	select {
	case r.snapshotChanged <- struct{}{}:
	default: // there is a token already
	}
	return nil
}

func (r *running) setRefresh(c *Config) error {
	o, err := c.refresh()
	if err != nil {
		return err
	}
	o.Accesses, o.Misses, o.Keys = 0, 0, 0 // they stay
	return r.everyCache(func(c *cache.Cache) error { return c.SetRefresh(o) })
}

// everyCache calls f for all caches.
func (r *running) everyCache(f func(*cache.Cache) error) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	var errs []error
	for _, c := range r.caches {
		errs = append(errs, f(c))
	}
	return errors.Join(errs...)
}

func (r *running) setPolicy(c *Config) error {
	return r.everyCache(func(one *cache.Cache) error {
		p, err := c.policy()
		if err != nil {
			return err
		}
		return one.SetPolicy(p)
	})
}

// changeTime bounds how long a reload waits for rows to give way to a smaller budget.
const changeTime = time.Minute

// sharedLocked returns the cache of the tables without a budget of their own. Of several, as those have that come later, it is the first. REQUIRES: r.changing is held.
func (r *running) sharedLocked() (*cache.Cache, error) {
	for _, c := range r.tables.View().Caches {
		if r.configs[c].Tables[0].Budget == "" {
			return c, nil
		}
	}
	return nil, errors.New("--gpu-memory: every table has a budget of its own, as its gpu_memory: there is none to change")
}

// setBudget sets the budget of the tables that share it.
func (r *running) setBudget(c *Config) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	shared, err := r.sharedLocked()
	if err != nil {
		return err
	}
	s, err := shared.Stats()
	if err != nil {
		return err
	}
	raw := int64(0)
	for i, t := range s.Tables {
		raw += max(t.Rows, r.configs[shared].Tables[i].Capacity) * int64(t.RowBytes)
	}
	budgets, err := c.budgets(raw)
	if err == nil && len(budgets) > 1 {
		err = fmt.Errorf("--gpu-memory (%s): a budget for each device takes a restart", c.Budget)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.life, changeTime)
	defer cancel()
	return shared.SetBudget(ctx, budgets[0])
}

// budgetCommand is the command gpu-memory.
func (r *running) budgetCommand(ctx context.Context, bytes int64) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	shared, err := r.sharedLocked()
	if err != nil {
		return err
	}
	return shared.SetBudget(ctx, bytes)
}

// reloadSecrets reads the files of passwords, token and certificate again. Their names stay.
func (r *running) reloadSecrets(next *Config) {
	if users, err := r.config.users(); err != nil {
		r.log.Error("users and passwords not reloaded", slog.Any("error", err))
	} else {
		r.users.Store(&users)
		if r.resp != nil {
			r.resp.SetUsers(users)
		}
	}
	if r.resp != nil {
		if err := r.certificate.load(r.config); err != nil {
			r.log.Error("certificate not reloaded", slog.Any("error", err))
		}
	}
	if r.web != nil {
		token, err := r.config.token()
		if err != nil {
			r.log.Error("token not reloaded", slog.Any("error", err))
		} else {
			r.web.SetToken(token)
		}
	}
}

// keptCertificate is the certificate that new connections get.
type keptCertificate struct {
	mu struct {
		sync.Mutex
		cert *tls.Certificate
	}
}

func (k *keptCertificate) load(c *Config) error {
	if c.RESPCert == "" {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(c.RESPCert, c.RESPKey)
	if err != nil {
		return fmt.Errorf("--resp-tls-cert (%s): %w", c.RESPCert, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.cert = &cert
	return nil
}

// security returns the TLS settings of the RESP listener, nil for none.
func (k *keptCertificate) security(c *Config) (*tls.Config, error) {
	if c.RESPCert == "" {
		return nil, nil
	}
	if err := k.load(c); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.mu.cert, nil
	}}, nil
}
