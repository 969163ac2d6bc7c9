package resp

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// info is INFO: sections of lines "name:value". keyspace_hits and keyspace_misses count rows, as in Redis. Clients that took no replies are
// client_output_buffer_limit_disconnections, failed logins acl_access_denied_auth.
// used_memory is what the tables and the caches take, on the host and on all devices: budgets without what is not allocated of them.
func (c *conn) info(args [][]byte) error {
	if len(args) > 1 {
		return errSyntax
	}
	section := "default"
	if len(args) == 1 {
		section = strings.ToLower(cut(args[0]))
	}
	s := c.server
	stats, err := s.tables.Stats()
	if err != nil {
		return fmt.Errorf("ERR %w", err)
	}
	var b strings.Builder
	part := func(name string, lines ...any) {
		if section != "default" && section != "all" && section != "everything" && section != strings.ToLower(name) {
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
	part("Server", "redis_version", "7.0.0", "tensorcache_version", s.o.Version, "redis_mode", "standalone", "process_id", os.Getpid(), "tcp_port", c.port(),
		"uptime_in_seconds", int64(time.Since(s.started).Seconds()))
	part("Clients", "connected_clients", s.Clients(), "blocked_clients", 0, "maxclients", s.o.MaxClients)
	part("Memory", "used_memory", stats.HostBytes+stats.OverlayBytes+stats.BudgetBytes-stats.UnallocatedBytes, "host_bytes", stats.HostBytes, "budget_bytes", stats.BudgetBytes,
		"payload_bytes", stats.PayloadBytes, "metadata_bytes", stats.MetadataBytes, "resident_bytes", stats.ResidentBytes, "free_bytes", stats.FreeBytes, "unallocated_bytes", stats.UnallocatedBytes)
	part("Stats", "total_connections_received", s.counts.connections.Load(), "rejected_connections", s.endings.of(full),
		"evicted_clients", s.endings.of(evicted), "client_output_buffer_limit_disconnections", s.endings.of(unread), "http_requests_refused", s.endings.of(http),
		"acl_access_denied_auth", s.logins.Failed(),
		"total_commands_processed", s.counts.commands.Load(), "keyspace_hits", stats.Hits, "keyspace_misses", stats.Misses,
		"hit_ratio", stats.HitRatio, "refresh_cycles", stats.Refresh.Cycles, "updated_rows", stats.Updates.UpdatedRows)
	part("Replication", "role", "master", "connected_slaves", 0)
	part("Keyspace", "db0", fmt.Sprintf("keys=%d,expires=0,avg_ttl=0", stats.Rows))
	var lines []any
	for _, t := range stats.Tables {
		lines = append(lines, fmt.Sprintf("table%d", t.Number), fmt.Sprintf("name=%s,rows=%d,row_bytes=%d,dtype=%s,codec=%v,rows_cached=%d,lookups=%d,hits=%d",
			t.Name, t.Rows, t.RowBytes, t.DType, t.Codec, t.CachedRows, t.Lookups, t.Hits))
	}
	part("Tables", lines...)
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
	table, rows, err := c.gather.tables.rows(args)
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
