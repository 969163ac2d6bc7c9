package daemon

import (
	"fmt"
	"log/slog"
)

// The process may have so many files open, connections among them (RLIMIT_NOFILE). Connections that do nothing must not take them all: each
// listener has a share, and the rest is for attached processes, commands, and the files of the cache.
const (
	// leastReserve and mostReserve bound the rest, which is a quarter of the limit.
	leastReserve, mostReserve = 32, 1024
	// mostHTTP is the most connections of --http, which has an eighth of the limit.
	leastHTTP, mostHTTP = 8, 256
)

// httpShare is the most connections of --http.
func httpShare(limit int) int { return min(mostHTTP, max(leastHTTP, limit/8)) }

// respShare is the most clients of --resp if used files are open already.
func respShare(limit, used, http int) int {
	return limit - used - http - min(mostReserve, max(leastReserve, limit/4))
}

// respClients returns how many clients --resp serves: fewer than --resp-clients if the process may not have as many files open.
func (r *running) respClients() (int, error) {
	c := r.config
	limit, used, known := openFiles()
	if !known {
		return c.RESPClients, nil
	}
	http := 0
	if c.HTTP != "" {
		http = httpShare(limit)
	}
	share := respShare(limit, used, http)
	switch {
	case share < 1:
		return 0, fmt.Errorf("--resp: open files (at most %d, RLIMIT_NOFILE, of which %d are in use) must be at least %d more to have room for a client", limit, used, 1-share)
	case share < c.RESPClients:
		r.log.Warn("--resp serves fewer clients, as the process may not have more files open", slog.Int("clients", share), slog.Int("resp_clients", c.RESPClients),
			slog.Int("open_files_limit", limit))
		return share, nil
	}
	return c.RESPClients, nil
}
