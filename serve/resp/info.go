package resp

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// info is INFO: sections of lines "name:value". keyspace_hits and keyspace_misses count rows, as in Redis. Clients that took no replies are
// client_output_buffer_limit_disconnections, failed logins acl_access_denied_auth.
// used_memory is what the tables and the caches take, on the host and on all devices: budgets without what is not allocated of them.
func (c *conn) info(args [][]byte) error {
	var asked []string
	for _, a := range args {
		asked = append(asked, strings.ToLower(cut(a)))
	}
	some := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(asked, name) })
	}
	all, usual := some("all", "everything"), len(asked) == 0 || some("default")
	s := c.server
	stats, err := s.tables.Stats()
	if err != nil {
		return fmt.Errorf("ERR %w", err)
	}
	counted := s.Counters()
	var b strings.Builder
	section := func(name string, shown bool, lines ...any) {
		if !shown && !all && !some(strings.ToLower(name)) {
			return
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		fmt.Fprintf(&b, "# %s\r\n", name)
		for i := 0; i < len(lines); i += 2 {
			fmt.Fprintf(&b, "%v:%v\r\n", lines[i], lines[i+1])
		}
	}
	up := int64(time.Since(s.started).Seconds())
	section("Server", usual, "redis_version", "7.0.0", "tensorcache_version", s.o.Version, "redis_mode", "standalone", "os", runtime.GOOS, "arch_bits", 64, "process_id", os.Getpid(),
		"tcp_port", c.port(), "server_time_usec", time.Now().UnixMicro(), "uptime_in_seconds", up, "uptime_in_days", up/(24*3600))
	section("Clients", usual, "connected_clients", s.Clients(), "blocked_clients", 0, "tracking_clients", counted.Tracking, "maxclients", s.o.MaxClients)
	section("Memory", usual, "used_memory", stats.HostBytes+stats.OverlayBytes+stats.BudgetBytes-stats.UnallocatedBytes, "maxmemory", 0, "maxmemory_policy", "noeviction",
		"mem_clients_normal", counted.Memory, "host_bytes", stats.HostBytes, "budget_bytes", stats.BudgetBytes, "payload_bytes", stats.PayloadBytes, "metadata_bytes", stats.MetadataBytes,
		"resident_bytes", stats.ResidentBytes, "free_bytes", stats.FreeBytes, "unallocated_bytes", stats.UnallocatedBytes)
	section("Persistence", usual, "loading", 0, "aof_enabled", 0, "rdb_bgsave_in_progress", 0)
	section("Stats", usual, "total_connections_received", counted.Connections, "rejected_connections", s.endings.of(full),
		"evicted_clients", s.endings.of(evicted), "client_output_buffer_limit_disconnections", s.endings.of(unread), "http_requests_refused", s.endings.of(http),
		"acl_access_denied_auth", counted.FailedLogins,
		"total_commands_processed", s.counters.commands(), "keyspace_hits", stats.Hits, "keyspace_misses", stats.Misses,
		"hit_ratio", stats.HitRatio, "refresh_cycles", stats.Refresh.Cycles, "updated_rows", stats.Updates.UpdatedRows)
	section("Replication", usual, "role", "master", "connected_slaves", 0)
	section("Modules", usual)
	var calls []any
	for _, name := range slices.Sorted(maps.Keys(counted.Commands)) {
		k := counted.Commands[name]
		calls = append(calls, "cmdstat_"+name, fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d", k.Calls, k.Time.Microseconds(),
			float64(k.Time.Nanoseconds())/1000/max(1, float64(k.Calls)), k.Rejected, k.Failed))
	}
	section("Commandstats", false, calls...)
	section("Cluster", usual, "cluster_enabled", 0)
	section("Keyspace", usual, "db0", fmt.Sprintf("keys=%d,expires=0,avg_ttl=0", stats.Rows))
	var lines []any
	for _, t := range stats.Tables {
		lines = append(lines, fmt.Sprintf("table%d", t.Number), fmt.Sprintf("name=%s,rows=%d,row_bytes=%d,dtype=%s,codec=%v,rows_cached=%d,lookups=%d,hits=%d",
			t.Name, t.Rows, t.RowBytes, t.DType, t.Codec, t.CachedRows, t.Lookups, t.Hits))
	}
	section("Tables", usual, lines...)
	c.verbatim(b.String())
	return nil
}

// stats is TC.STATS.
func (c *conn) stats([][]byte) error {
	tell := c.server.o.Stats
	if tell == nil {
		tell = func() (any, error) { return c.server.tables.Stats() }
	}
	return c.json(tell())
}

// explain is TC.EXPLAIN.
func (c *conn) explain(args [][]byte) error {
	table, rows, err := c.gather.rowsOf(args)
	if err != nil {
		return err
	}
	if len(rows) > maxExplained {
		return fmt.Errorf("ERR rows (%d) must be at most %d", len(rows), maxExplained)
	}
	return c.json(c.gather.cache.explain(table, rows))
}

// maxExplained is the most rows that one TC.EXPLAIN explains: changes of the cache wait for it.
const maxExplained = 10_000

func (c *conn) json(v any, err error) error {
	if err != nil {
		return fmt.Errorf("ERR %w", err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("ERR %w", err)
	}
	c.bulk(b)
	return nil
}
