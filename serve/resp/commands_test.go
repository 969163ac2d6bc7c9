package resp

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

// encodedAll returns commands, of words between spaces, one after the other.
func encodedAll(commands ...string) (all string) {
	for _, c := range commands {
		all += encoded(strings.Fields(c)...)
	}
	return all
}

// TestServer_Transactions: what MULTI queues is replied to by EXEC, in order, and GETs among it become one Gather.
func TestServer_Transactions(t *testing.T) {
	t.Parallel()
	c := open(t)
	_, addr := start(t, Options{Cache: c})
	cl := dial(t, addr)
	before, _ := c.Stats()
	io.WriteString(cl, encodedAll("MULTI", "GET users:1", "GET users:2", "GET users:1000", "ECHO x", "GET nothing", "MGET users:3 users:x", "EXEC", "PING"))
	for _, want := range []string{"+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED",
		fmt.Sprintf("[%s %s null \"x\" -ERR key (\"nothing\") must be table:row [%s null]]", quoted(1, 16), quoted(2, 16), quoted(3, 16)), "+PONG"} {
		if got := cl.reply(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	after, _ := c.Stats()
	if n := after.Tables[0].Gathers - before.Tables[0].Gathers; n > 3 {
		t.Errorf("%d Gathers", n)
	}
	cl.expect("-ERR EXEC without MULTI", "EXEC")
	cl.expect("-ERR DISCARD without MULTI", "DISCARD")
	cl.expect("+OK", "MULTI")
	cl.expect("+QUEUED", "GET", "users:1")
	cl.expect("+OK", "DISCARD")
	cl.expect(quoted(1, 16), "GET", "users:1")
	cl.expect("+OK", "MULTI")
	cl.expect("-ERR wrong number of arguments for 'get' command", "GET")
	cl.expect("-EXECABORT Transaction discarded because of previous errors.", "EXEC")
	cl.expect("+OK", "MULTI")
	cl.expect("+QUEUED", "ECHO", "x")
	cl.expect("-ERR MULTI calls can not be nested", "MULTI")
	cl.expect(`["x"]`, "EXEC")
	cl.expect("+OK", "MULTI")
	cl.expect("-ERR Command not allowed inside a transaction", "AUTH", "admin", "a")
	cl.expect("-EXECABORT Transaction discarded because of previous errors.", "EXEC")
	cl.expect("+OK", "MULTI")
	cl.expect("-ERR WATCH inside MULTI is not allowed", "WATCH", "users:1")
	cl.expect("+RESET", "RESET")
	cl.expect("+OK", "MULTI")
	cl.expect("[]", "EXEC")
}

// TestServer_TransactionsTooLong: what MULTI queues counts as memory of all clients.
func TestServer_TransactionsTooLong(t *testing.T) {
	t.Parallel()
	s, addr := start(t, Options{Cache: open(t), MaxMemory: 4 << 20})
	cl := dial(t, addr)
	cl.expect("+OK", "MULTI")
	go io.WriteString(cl, strings.Repeat(encoded("ECHO", strings.Repeat("x", 1<<16)), 100))
	io.Copy(io.Discard, cl.from)
	until(t, "it is counted", func() bool { return s.endings.of(evicted) == 1 })
	until(t, "nothing is held", func() bool { return s.memory.held() == 0 })
}

// TestServer_Watch: EXEC does nothing if a watched row has changed, whoever changed it.
func TestServer_Watch(t *testing.T) {
	t.Parallel()
	c := open(t)
	_, addr := start(t, Options{Cache: c, Users: Users{Admin: "a"}})
	cl := dial(t, addr)
	cl.expect("+OK", "AUTH", "admin", "a")
	value := strings.Repeat("v", 64)
	cl.expect("+OK", "WATCH", "users:5", "users:1000")
	io.WriteString(cl, encodedAll("MULTI")+encoded("TC.SET", "users", "5", value)+encodedAll("EXEC"))
	for _, want := range []string{"+OK", "+QUEUED", "[+OK]"} {
		if got := cl.reply(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for proto, none := range map[string]string{"2": "*-1\r\n", "3": "_\r\n"} {
		cl.ask("HELLO", proto)
		cl.expect("+OK", "WATCH", "users:6")
		if err := c.Update(t.Context(), 0, []int64{6}, []byte(strings.Repeat(proto, 64))); err != nil {
			t.Fatal(err)
		}
		cl.expect("+OK", "MULTI")
		cl.expect("+QUEUED", "GET", "users:6")
		io.WriteString(cl, encodedAll("EXEC"))
		if got, _ := cl.from.ReadString('\n'); got != none {
			t.Errorf("RESP%s: %q", proto, got)
		}
	}
	cl.expect("+OK", "WATCH", "users:6")
	cl.expect("+OK", "UNWATCH")
	c.Update(t.Context(), 0, []int64{6}, []byte(value))
	cl.expect("+OK", "MULTI")
	cl.expect("[]", "EXEC")
	cl.expect("-ERR key (\"x\")…", "WATCH", "x")
}

// TestServer_WatchDeaf: a client that takes no replies of an EXEC keeps no other from changing rows, whether or not it may change some itself.
func TestServer_WatchDeaf(t *testing.T) {
	t.Parallel()
	s, addr := start(t, Options{Cache: open(t), Users: Users{Admin: "a"}})
	value := strings.Repeat("v", 64)
	mget := encoded(append([]string{"MGET"}, slices.Repeat([]string{"wide:1"}, 200)...)...) // a reply of 40 MB
	writer := dial(t, addr)
	writer.expect("+OK", "AUTH", "admin", "a")
	writer.SetDeadline(time.Now().Add(20 * time.Second)) // less than writeTime
	for _, admin := range []bool{false, true} {
		deaf := dial(t, addr)
		if admin {
			deaf.expect("+OK", "AUTH", "admin", "a")
		}
		io.WriteString(deaf, encodedAll("WATCH users:1", "MULTI")+mget+encoded("TC.SET", "users", "2", value)+encodedAll("EXEC"))
		until(t, "its reply waits", func() bool { return s.memory.held() > 0 })
		writer.expect("+OK", "TC.SET", "users", "3", value)
		deaf.Close()
		until(t, "it has ended", func() bool { return s.Clients() == 1 })
	}
	writer.expect("+OK", "WATCH", "users:1")
	io.WriteString(writer, encodedAll("MULTI")+mget+mget+encoded("TC.SET", "users", "2", value)+encodedAll("EXEC"))
	io.Copy(io.Discard, writer.from)
	until(t, "too long replies are counted", func() bool { return s.endings.of(incomplete) == 1 })
	other := dial(t, addr)
	other.expect("+OK", "AUTH", "admin", "a")
	other.expect("+OK", "TC.SET", "users", "3", value)
}

// TestServer_ExecRights: EXEC runs what the user may run then.
func TestServer_ExecRights(t *testing.T) {
	t.Parallel()
	op := User{Name: "op", Passwords: []Digest{sha256.Sum256([]byte("p"))}, Admin: true}
	s, addr := start(t, Options{Cache: open(t), Users: Users{Named: []User{op}}})
	cl := dial(t, addr)
	cl.expect("+OK", "AUTH", "op", "p")
	cl.expect("+OK", "MULTI")
	cl.expect("+QUEUED", "ACL", "USERS")
	cl.expect("+QUEUED", "ECHO", "x")
	op.Admin = false
	s.SetUsers(Users{Named: []User{op}})
	cl.expect("[-NOPERM User op has no permissions to run the 'acl|users' command: it is for users with admin \"x\"]", "EXEC")
}

// TestServer_Held: what WATCH, long commands and long replies hold is counted, as long as they hold it.
func TestServer_Held(t *testing.T) {
	t.Parallel()
	s, addr := start(t, Options{Cache: open(t), MaxMemory: 16 << 20})
	cl := dial(t, addr)
	cl.ask("ECHO", strings.Repeat("x", 1<<20))
	until(t, "nothing is held", func() bool { return s.memory.held() == 0 })
	watch := []string{"WATCH"}
	for i := range 5000 {
		watch = append(watch, fmt.Sprintf("users:%0300d", i%1000))
	}
	cl.expect("+OK", watch...)
	until(t, "the rows are counted, and not their keys", func() bool { return s.memory.held() == 5000*watchedBytes-freeBytes })
	cl.expect("+OK", "UNWATCH")
	if held := s.memory.held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
	// A reply of several times the memory.
	io.WriteString(cl, encoded(append([]string{"COMMAND", "DOCS"}, slices.Repeat([]string{"client"}, 15_000)...)...)+encodedAll("QUIT"))
	if n, err := io.Copy(io.Discard, cl.from); n < 32<<20 || err != nil || s.endings.of(evicted) != 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestServer_LongMatch: patterns are not long, and KEYS ends with its connection.
func TestServer_LongMatch(t *testing.T) {
	t.Parallel()
	s, addr := start(t, Options{Cache: open(t)})
	cl := dial(t, addr)
	long := strings.Repeat("*a", maxKey)
	for _, command := range [][]string{{"KEYS", long}, {"SCAN", "0", "MATCH", long}, {"CONFIG", "GET", long}} {
		cl.expect("-ERR pattern (\"*a*a…", command...)
	}
	s.mu.Lock()
	for c := range s.mu.conns {
		c.killed.Store(true)
	}
	s.mu.Unlock()
	io.WriteString(cl, encoded("KEYS", "*"))
	if got, err := io.ReadAll(cl.from); len(got) > 0 || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestServer_Keyspace: the commands that describe rows.
func TestServer_Keyspace(t *testing.T) {
	t.Parallel()
	_, addr := start(t, Options{Cache: open(t)})
	cl := dial(t, addr)
	for command, want := range map[string]string{
		"TYPE users:0": "+string", "TYPE users:1000": "+none", "STRLEN a:b:1": ":8", "STRLEN a:b:100": ":0", "TTL users:0": ":-1", "PTTL users:0": ":-1", "TTL users:1000": ":-2",
		"GETRANGE a:b:3 4 7": fmt.Sprintf("%q", rowsOf(4, 2)[28:]), "GETRANGE a:b:3 -4 -1": fmt.Sprintf("%q", rowsOf(4, 2)[28:]), "GETRANGE a:b:3 0 -1": quoted(3, 2), "GETRANGE a:b:3 5 4": `""`,
		"GETRANGE a:b:3 0 9223372036854775807": quoted(3, 2), "GETRANGE a:b:3 0 -1000": fmt.Sprintf("%q", rowsOf(4, 2)[24:25]), "GETRANGE a:b:3 -1 -3": `""`, "GETRANGE a:b:3 -100 -200": `""`,
		"COMMAND LIST FILTERBY MODULE x": "[]", "COMMAND LIST FILTERBY PATTERN GeT*": `["get" "getrange"]`, "COMMAND LIST FILTERBY ACLCAT transaction": `["discard" "exec" "multi" "unwatch" "watch"]`,
		"COMMAND LIST FILTERBY x y": "-ERR syntax error", "CLIENT NO-EVICT foo": "-ERR syntax error", "CLIENT NO-TOUCH on": "+OK", "CLIENT REPLY ON": "+OK",
		"CLIENT KILL MAXAGE 9223372036854775807": ":0", "CLIENT KILL SKIPME maybe": "-ERR syntax error", "CLIENT KILL TYPE foo": "-ERR Unknown client type 'foo'", "CLIENT LIST TYPE foo": "-ERR Unknown client type 'foo'",
		"CONFIG GET MaxMemory":    `["maxmemory" "0"]`,
		"GETRANGE a:b:3 -100 100": quoted(3, 2), "GETRANGE a:b:100 0 1": `""`, "GETRANGE a:b:3 x 1": "-ERR value is not an integer or out of range",
		"OBJECT ENCODING users:1": `"raw"`, "OBJECT ENCODING users:1000": "null", "OBJECT REFCOUNT users:1": ":1", "OBJECT FREQ users:1": "-ERR An LFU maxmemory policy is not selected…",
		"HMGET users:1 0": "-WRONGTYPE Operation against a key holding the wrong kind of value…", "HGETALL users:1": "-WRONGTYPE…", "EXISTS users:1 x users:y z:1 users:2": ":2",
		"KEYS a:b:1?":       `["a:b:10" "a:b:11" "a:b:12" "a:b:13" "a:b:14" "a:b:15" "a:b:16" "a:b:17" "a:b:18" "a:b:19"]`,
		"KEYS users:99[89]": `["users:998" "users:999"]`, "KEYS users:7": `["users:7"]`, "KEYS users:07": "[]", "KEYS nothing": "[]", "KEYS users:1000": "[]",
		"SCAN 0 COUNT 3": `["3" ["users:0" "users:1" "users:2"]]`, "SCAN 0 TYPE hash": `["0" []]`, "SCAN x": "-ERR invalid cursor", "SCAN 0 COUNT 0": "-ERR syntax error", "SCAN 0 MATCH": "-ERR syntax error",
		"ROLE": "[\"master\" :0 []]", "CLUSTER INFO": "-ERR This instance has cluster support disabled", "ACL WHOAMI": `"default"`, "COMMAND GETKEYS MGET a b": `["a" "b"]`,
		"CONFIG GET max*":   `["maxclients" "1000" "maxmemory" "0" "maxmemory-clients" "536870912" "maxmemory-policy" "noeviction"]`,
		"ACL CAT nonsense":  "-ERR Unknown category 'nonsense'",
		"ACL LIST":          "-NOPERM User default has no permissions to run the 'acl|list' command: it is for users with admin",
		"CLIENT NONSENSE":   "-ERR unknown subcommand 'NONSENSE'. Try CLIENT HELP.",
		"CLIENT KILL":       "-ERR wrong number of arguments for 'client|kill' command",
		"ACL":               "-ERR wrong number of arguments for 'acl' command",
		"client|list":       "-ERR unknown command 'client|list'",
		"OBJECT ENCODING x": "-ERR key (\"x\") must be table:row",
	} {
		cl.expect(want, strings.Fields(command)...)
	}
	if got := cl.ask("TIME"); !strings.HasPrefix(got, fmt.Sprintf("[%q", fmt.Sprint(time.Now().Unix()))[:8]) {
		t.Errorf("TIME: %s", got)
	}
	// A scan has every key once.
	seen, cursor, calls := map[string]int{}, "0", 0
	for calls == 0 || cursor != "0" {
		got := cl.ask("SCAN", cursor, "COUNT", "97", "MATCH", "*")
		if calls++; calls > 100 {
			t.Fatal("the scan does not end")
		}
		var keys string
		fmt.Sscanf(got, "[%q", &cursor)
		_, keys, _ = strings.Cut(got[1:], "[")
		for _, key := range strings.Fields(strings.Trim(keys, "[]")) {
			seen[key]++
		}
	}
	if len(seen) != 1120 || seen[`"a:b:99"`] != 1 || seen[`"wide:19"`] != 1 {
		t.Errorf("a scan has %d keys", len(seen))
	}
	if got := cl.ask("SCAN", "0", "COUNT", "1000000", "MATCH", "wide:1*"); strings.Count(got, "wide:1") != 11 || !strings.HasPrefix(got, `["0"`) {
		t.Errorf("SCAN of a pattern: %s", got)
	}
	// The connection ends after these.
	cl.expect(":1", "CLIENT", "KILL", "SKIPME", "no")
	other := dial(t, addr)
	other.expect("-ERR CLIENT REPLY OFF and SKIP are not supported: the connection ends", "CLIENT", "REPLY", "SKIP")
	for _, ended := range []*client{cl, other} {
		if got, err := io.ReadAll(ended.from); len(got) > 0 || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// TestServer_Users: named users have rights by table.
func TestServer_Users(t *testing.T) {
	t.Parallel()
	var audit lockedBuffer
	users := Users{Admin: "root", Named: []User{
		{Name: "trainer", Passwords: []Digest{sha256.Sum256([]byte("old")), sha256.Sum256([]byte("new"))}, Read: []string{"users"}, Write: []string{"a:b"}},
		{Name: "default", Passwords: []Digest{sha256.Sum256([]byte("d"))}, Read: []string{"wide"}},
	}}
	if users.Open() || !users.Login("trainer", []byte("old")) || users.Login("trainer", []byte("d")) || users.Login("nobody", nil) {
		t.Error("Login")
	}
	s, addr := start(t, Options{Cache: open(t), Users: users, Audit: slog.New(slog.NewJSONHandler(&audit, nil))})
	cl := dial(t, addr)
	cl.expect("-NOAUTH Authentication required.", "GET", "users:0")
	cl.expect("+OK", "AUTH", "d")
	cl.expect("-NOPERM user default has no permission to read rows of table users (GET)", "GET", "users:0")
	cl.expect("+OK", "AUTH", "trainer", "old")
	cl.expect("+OK", "AUTH", "trainer", "new")
	cl.expect(`"trainer"`, "ACL", "WHOAMI")
	cl.expect(quoted(0, 16), "GET", "users:0")
	cl.expect("-NOPERM user trainer has no permission to read rows of table a:b (MGET)", "MGET", "users:0", "a:b:1")
	cl.expect("-NOPERM user trainer has no permission to read rows of table wide (TC.GATHER)", "TC.GATHER", "2", "0")
	cl.expect(":1000", "DBSIZE")
	cl.expect("-ERR table (\"x\") must be one of 2: users, a:b", "GET", "x:1")
	cl.expect("+OK", "TC.SET", "a:b", "3", "12345678", "7", "12345678")
	cl.expect("-NOPERM user trainer has no permission to change rows of table users (TC.SET): log in as one that may (AUTH USER PASSWORD)", "TC.SET", "users", "1", strings.Repeat("x", 64))
	cl.expect("-ERR cache: row numbers out of range…", "TC.SET", "a:b", "100", "12345678")
	if got := cl.ask("SCAN", "0", "COUNT", "100000"); strings.Count(got, "users:") != 1000 || strings.Contains(got, "wide") {
		t.Errorf("SCAN: %.100s", got)
	}
	// Connections of other users are not seen.
	admin := dial(t, addr)
	admin.expect("+OK", "AUTH", "admin", "root")
	if got := cl.ask("CLIENT", "LIST"); strings.Count(got, "id=") != 1 || !strings.Contains(got, "user=trainer") {
		t.Errorf("CLIENT LIST of trainer: %s", got)
	}
	if got := admin.ask("CLIENT", "LIST"); strings.Count(got, "id=") != 2 || !strings.Contains(got, "cmd=client|list user=trainer") {
		t.Errorf("CLIENT LIST of admin: %s", got)
	}
	cl.expect(":0", "CLIENT", "KILL", "USER", "admin")
	admin.expect(`["user admin on %R~* %W~* +@all" "user default on %R~wide:* +@all -@admin" "user trainer on %R~users:* %W~a:b:* +@all -@admin"]`, "ACL", "LIST")
	admin.expect(`["admin" "default" "trainer"]`, "ACL", "USERS")
	// Rights change while a connection lasts.
	users.Named = users.Named[:1]
	users.Named[0].Read = []string{"*"}
	s.SetUsers(users)
	cl.expect(":8", "STRLEN", "a:b:1")
	admin.expect(":1", "CLIENT", "KILL", "USER", "trainer")
	if _, err := cl.from.ReadByte(); err == nil {
		t.Error("the killed connection goes on")
	}
	until(t, "it is counted", func() bool { return s.endings.of(killed) == 1 })
	// The audit log.
	var all []map[string]any
	for line := range strings.Lines(audit.text()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	if len(all) != 2 || all[0]["user"] != "trainer" || all[0]["table"] != "a:b" || all[0]["rows"] != 2. || all[0]["first"] != 3. || all[0]["last"] != 7. || all[0]["error"] != nil ||
		!strings.HasPrefix(fmt.Sprint(all[0]["from"]), "127.0.0.1:") || all[0]["time"] == nil || all[1]["rows"] != 0. || all[1]["error"] == nil {
		t.Errorf("the audit log has %v", all)
	}
	if n := s.Counters().ChangedRows; n != 2 {
		t.Errorf("%d rows are counted as changed", n)
	}
}

// TestServer_Tracking: clients that keep rows hear of changes, also while they wait and by TLS, and of changes that did not come by the server.
func TestServer_Tracking(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	for name, security := range map[string]*tls.Config{"plain": nil, "TLS": {Certificates: []tls.Certificate{cert}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t)
			s, addr := start(t, Options{Cache: c, Users: Users{Admin: "a"}, TLS: security})
			connect := func() *client {
				cl := dial(t, addr)
				if security != nil {
					cl.Conn = tls.Client(cl.Conn, &tls.Config{RootCAs: pool, ServerName: "localhost"})
					cl.from = newReader(cl.Conn)
				}
				return cl
			}
			tracks(t, c, s, connect(), connect())
		})
	}
}

// tracks is TestServer_Tracking by two connections.
func tracks(t *testing.T, c *cache.Cache, s *Server, cl, writer *client) {
	writer.expect("+OK", "AUTH", "admin", "a")
	cl.expect("-ERR Client tracking can be switched on only in RESP3 mode…", "CLIENT", "TRACKING", "ON")
	cl.ask("HELLO", "3")
	cl.expect("-ERR CLIENT CACHING YES is only valid…", "CLIENT", "CACHING", "YES")
	cl.expect(":-1", "CLIENT", "GETREDIR")
	cl.expect("+OK", "CLIENT", "TRACKING", "ON", "OPTIN")
	const told = `["invalidate" null]`
	update := func() { // by another than the server's clients
		t.Helper()
		if err := c.Update(t.Context(), 0, []int64{2}, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		if got := cl.reply(); got != told {
			t.Fatalf("got %s", got)
		}
	}
	update() // right after TRACKING ON
	cl.expect("+OK", "CLIENT", "CACHING", "YES")
	cl.expect(`["flags" [+on +optin] "redirect" :0 "prefixes" []]`, "CLIENT", "TRACKINGINFO")
	cl.expect(quoted(1, 16), "GET", "users:1")
	for range 3 {
		writer.expect("+OK", "TC.SET", "users", "1", strings.Repeat("x", 64))
		if got := cl.reply(); got != told {
			t.Fatalf("got %s", got)
		}
	}
	time.Sleep(2 * watchTime)
	cl.expect("+PONG", "PING") // what has been told is not told again
	update()
	cl.ask("HELLO", "2")
	until(t, "tracking has ended", func() bool { return s.Counters().Tracking == 0 })
}

// TestServer_IdleTime: a client that sends nothing for long is cut off, one that sends is not.
func TestServer_IdleTime(t *testing.T) {
	t.Parallel()
	s, addr := start(t, Options{Cache: open(t), IdleTime: 300 * time.Millisecond})
	busy, quiet := dial(t, addr), dial(t, addr)
	quiet.expect("+PONG", "PING")
	for s.endings.of(idle) == 0 {
		busy.expect("+PONG", "PING")
		time.Sleep(10 * time.Millisecond)
	}
	if got, err := io.ReadAll(quiet.from); len(got) > 0 || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	busy.expect("+PONG", "PING")
}

// TestServer_Counters: calls, errors, and the slow log.
func TestServer_Counters(t *testing.T) {
	t.Parallel()
	s, addr := start(t, Options{Cache: open(t)})
	cl := dial(t, addr)
	io.WriteString(cl, encodedAll("GET users:1", "GET users:2", "GET x", "NOSUCH", "GET", "STRLEN y", "CLIENT ID", "PING"))
	for range 8 {
		cl.reply()
	}
	cl.expect(`["ping" ["calls" :1 "histogram_usec" [:…`, "LATENCY", "HISTOGRAM", "PING")
	k := s.Counters()
	get := k.Commands["get"]
	sum := int64(0)
	for _, n := range get.Latency {
		sum += n
	}
	if get.Calls != 3 || get.Failed != 1 || get.Rejected != 1 || sum != 3 || get.Time <= 0 || k.Unknown != 1 || k.Commands["strlen"].Failed != 1 || k.Commands["client|id"].Calls != 1 || k.Clients != 1 {
		t.Errorf("%+v", k)
	}
	if got := cl.ask("INFO", "commandstats", "clients"); !strings.Contains(got, `cmdstat_get:calls=3,usec=`) || !strings.Contains(got, "rejected_calls=1,failed_calls=1") || !strings.Contains(got, "# Clients") ||
		strings.Contains(got, "# Server") {
		t.Errorf("INFO: %s", got)
	}
	s.mu.Lock()
	var one *conn
	for c := range s.mu.conns {
		one = c
	}
	s.mu.Unlock()
	cl.expect(":0", "SLOWLOG", "LEN")
	one.took(byName["mget"], time.Now().Add(-time.Second), slices.Repeat([][]byte{bytes.Repeat([]byte("x"), 200)}, 50))
	one.took(byName["auth"], time.Now().Add(-time.Second), [][]byte{[]byte("AUTH"), []byte("secret")})
	cl.expect(":1", "SLOWLOG", "LEN")
	if got := cl.ask("SLOWLOG", "GET"); !strings.HasPrefix(got, "[[:0 :") || !strings.Contains(got, `xx... (72 more bytes)" "... (19 more arguments)"] "127.0.0.1:`) || strings.Contains(got, "secret") {
		t.Errorf("SLOWLOG GET: %s", got)
	}
}

// TestServer_CommandInfo: sets and maps in RESP3, and every command has its ten members.
func TestServer_CommandInfo(t *testing.T) {
	t.Parallel()
	_, addr := start(t, Options{Cache: open(t)})
	cl := dial(t, addr)
	cl.ask("HELLO", "3")
	io.WriteString(cl, encoded("COMMAND", "INFO", "get"))
	want := "*1\r\n*10\r\n$3\r\nget\r\n:2\r\n~2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n~3\r\n+@read\r\n+@fast\r\n+@string\r\n~0\r\n~1\r\n%3\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(cl.from, got); err != nil || string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	cl.Close()
	cl = dial(t, addr)
	if got := cl.ask("COMMAND"); strings.Count(got, "[\"") < len(allNames) {
		t.Errorf("COMMAND: %s", got)
	}
	if got := cl.ask("CLIENT", "HELP"); !strings.Contains(got, "+KILL ADDR|ID") {
		t.Errorf("HELP: %s", got)
	}
}

var update = flag.Bool("update", false, "rewrite the table of commands in docs/resp.md")

// TestCommands_Documented: docs/resp.md has the table of commands, which are sorted.
func TestCommands_Documented(t *testing.T) {
	var b strings.Builder
	b.WriteString("| command | what it does |\n|---|---|\n")
	last := ""
	for _, cmd := range commands {
		if cmd.name <= last {
			t.Errorf("%s comes after %s", cmd.name, last)
		}
		last = cmd.name
		all := []*command{cmd}
		if cmd.run == nil {
			all = nil
		}
		for _, sub := range append(all, cmd.subs...) {
			if sub.name != "help" {
				fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ReplaceAll(strings.TrimSpace(strings.ToUpper(strings.ReplaceAll(sub.full, "|", " "))+" "+sub.arguments), "|", `\|`), sub.summary)
			}
		}
	}
	const path, begin, end = "../../docs/resp.md", "<!-- commands: go test ./serve/resp -run Documented -update -->\n", "<!-- end of commands -->"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), begin)
	is, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table", path)
	}
	switch {
	case *update:
		if err := os.WriteFile(path, []byte(head+begin+b.String()+end+tail), 0o666); err != nil {
			t.Fatal(err)
		}
	case is != b.String():
		t.Errorf("%s has another table of commands; -update writes it", path)
	}
}
