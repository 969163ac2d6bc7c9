package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tensorcache/tensorcache/serve/resp"
)

// TestClients_GoRedis: the commands of the listener by both protocols, with passwords, pipelines and errors.
func TestClients_GoRedis(t *testing.T) {
	ctx := context.Background()
	addr := serve(t, resp.Users{Password: "read", Admin: "write"})
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			c := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, Password: "read", ClientName: "test"})
			defer c.Close()
			if err := c.Ping(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if name, err := c.ClientGetName(ctx).Result(); err != nil || name != "test" {
				t.Errorf("name %q, %v", name, err)
			}
			if got, err := c.Get(ctx, "users:7").Result(); err != nil || got != row(7) {
				t.Errorf("GET: %q, %v", got, err)
			}
			if err := c.Get(ctx, "users:1000").Err(); !errors.Is(err, redis.Nil) {
				t.Errorf("GET of no row: %v", err)
			}
			if err := c.Get(ctx, "items:0").Err(); err == nil || !strings.HasPrefix(err.Error(), `ERR table ("items") must be one of 1`) {
				t.Errorf("GET of no table: %v", err)
			}
			all, err := c.MGet(ctx, "users:1", "users:1000", "0:999").Result()
			if err != nil || len(all) != 3 || all[0] != row(1) || all[1] != nil || all[2] != row(999) {
				t.Errorf("MGET: %q, %v", all, err)
			}
			if n, err := c.Exists(ctx, "users:1", "users:1000").Result(); err != nil || n != 1 {
				t.Errorf("EXISTS: %d, %v", n, err)
			}
			if n, err := c.DBSize(ctx).Result(); err != nil || n != 1000 {
				t.Errorf("DBSIZE: %d, %v", n, err)
			}
			if got, err := c.Do(ctx, "TC.GATHER", "users", 3, 2).Text(); err != nil || got != row(3)+row(2) {
				t.Errorf("TC.GATHER: %q, %v", got, err)
			}
			if info, err := c.Info(ctx, "server").Result(); err != nil || !strings.Contains(info, "tensorcache_version:test") {
				t.Errorf("INFO: %q, %v", info, err)
			}
			if docs, err := c.Command(ctx).Result(); err != nil || docs["mget"] == nil || !docs["mget"].ReadOnly || docs["mget"].FirstKeyPos != 1 {
				t.Errorf("COMMAND: %v, %v", docs["mget"], err)
			}
			if err := c.Do(ctx, "TC.SET", "users", 5, row(6)).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
				t.Errorf("TC.SET by a reader: %v", err)
			}
			replies, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for r := range 500 {
					p.Get(ctx, fmt.Sprintf("users:%d", 2*r))
				}
				return nil
			})
			if err != nil || len(replies) != 500 {
				t.Fatalf("%d replies, %v", len(replies), err)
			}
			for r, reply := range replies {
				if got := reply.(*redis.StringCmd).Val(); got != row(2*r) {
					t.Fatalf("row %d of a pipeline: %q", 2*r, got)
				}
			}
		})
	}
	admin := redis.NewClient(&redis.Options{Addr: addr, Username: "admin", Password: "write"})
	defer admin.Close()
	if err := admin.Do(ctx, "TC.SET", "users", 5, row(6)).Err(); err != nil {
		t.Error(err)
	}
	if got, err := admin.Get(ctx, "users:5").Result(); err != nil || got != row(6) {
		t.Errorf("after TC.SET: %q, %v", got, err)
	}
	wrong := redis.NewClient(&redis.Options{Addr: addr, Password: "nonsense"})
	defer wrong.Close()
	if err := wrong.Ping(ctx).Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
}
