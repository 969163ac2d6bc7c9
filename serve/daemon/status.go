package daemon

import (
	"maps"
	"os"
	"time"

	"github.com/tensorcache/tensorcache/internal/version"
	"github.com/tensorcache/tensorcache/serve"
	"github.com/tensorcache/tensorcache/serve/resp"
)

// status is what TC.STATS, /stats and the page tell: what `tensorcached status` tells, and what the program knows besides.
type status struct {
	*serve.Status
	Version       string  `json:"version"`
	UptimeSeconds float64 `json:"uptime_s"`
	// RESPClients are the oldest of the RESPConnected connections of --resp.
	RESPClients   []resp.Connection `json:"resp_clients"`
	RESPConnected int               `json:"resp_clients_connected"`
}

// mostClients is how many clients of Redis a status lists.
const mostClients = 50

func (r *running) status() (any, error) {
	tables := r.opened.Load()
	if tables == nil {
		return nil, errLoading
	}
	of, attached, err := r.unix.status()
	if !attached {
		of = &serve.Status{Attached: []serve.Client{}, Process: os.Getpid()}
		all, bad := tables.Stats()
		if err = bad; err == nil {
			of.Stats = *all
			maps.Copy(of.Errors, r.errors())
		}
	}
	if err != nil {
		return nil, err
	}
	of.Draining = of.Draining || r.leaving.Load() != nil
	s := &status{Status: of, Version: version.String(), UptimeSeconds: time.Since(r.started).Seconds(), RESPClients: []resp.Connection{}}
	if r.resp != nil {
		s.RESPClients, s.RESPConnected = r.resp.Connections(mostClients), r.resp.Clients()
	}
	return s, nil
}

// latency is web.Options.Latency: of all commands by Redis clients.
func (r *running) latency() []int64 {
	if r.serving.Load() == nil || r.resp == nil {
		return nil
	}
	all := make([]int64, resp.LatencyBuckets)
	for _, one := range r.resp.Counters().Commands {
		for i, n := range one.Latency {
			all[i] += n
		}
	}
	return all
}
