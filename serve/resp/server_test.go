package resp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/pages"
)

// quoted is a row of a table of open.
func quoted(row, columns int) string {
	return fmt.Sprintf("%q", rowsOf(row+1, columns)[4*row*columns:])
}

func TestServer_Rows(t *testing.T) {
	c := open(t)
	_, addr := start(t, Options{Cache: c, Version: "test"})
	cl := dial(t, addr)
	cl.expect(quoted(7, 16), "GET", "users:7")
	cl.expect(quoted(7, 16), "get", "0:0000000000007")
	cl.expect(quoted(3, 2), "GeT", "a:b:3")
	cl.expect(quoted(3, 2), "GET", "1:3")
	cl.expect("null", "GET", "users:1000")
	cl.expect("null", "GET", "users:9223372036854775807")
	cl.expect("-ERR key (\"users:9223372036854775808\") must be table:row, the row in decimal digits", "GET", "users:9223372036854775808")
	cl.expect("-ERR key (\"users:-1\") must be…", "GET", "users:-1")
	cl.expect("-ERR key (\"users\") must be table:row", "GET", "users")
	cl.expect("-ERR table (\"3\") must be one of 3: users, a:b, wide", "GET", "3:0")
	cl.expect("-ERR table (\"Users\") must be one of 3…", "GET", "Users:0")
	cl.expect("["+quoted(1, 16)+" null "+quoted(9, 2)+" "+quoted(1, 16)+"]", "MGET", "users:1", "a:b:100", "a:b:9", "0:1")
	cl.expect("["+quoted(1, 16)+" null null null null]", "MGET", "users:1", "x:1", "nothing", "users:x", "users:"+strings.Repeat("0", 1020))
	cl.expect(fmt.Sprintf("-ERR key (\"users:%s…\", 1026 bytes) must be at most 1024 bytes", strings.Repeat("0", 58)), "GET", "users:"+strings.Repeat("0", 1020))
	cl.expect(":2", "EXISTS", "users:0", "users:1000", "users:0")
	cl.expect(":1120", "DBSIZE")
	cl.expect(fmt.Sprintf("%q", append(rowsOf(6, 2)[40:], rowsOf(1, 2)...)), "TC.GATHER", "a:b", "5", "0")
	cl.expect("-ERR row (100) at position 1 must be 0 to 99, the last row of table a:b", "TC.GATHER", "a:b", "5", "100")
	cl.expect("-ERR row (\"x\") must be decimal digits", "TC.GATHER", "a:b", "x")
	cl.expect("-ERR wrong number of arguments for 'tc.gather' command", "TC.GATHER", "a:b")
	cl.expect("-ERR unknown command 'SET': rows are changed by TC.SET table row value", "SET", "users:1", "x")
	cl.expect("-ERR unknown command 'averylongnamethatisnocommand'", "averylongnamethatisnocommand")
	const noAdmin = " (TC.SET): no user may, because this server has no password for admin (tensorcached --resp-admin-password-file) and no such user in --resp-users"
	cl.expect("-NOPERM user default has no permission to change rows of table users"+noAdmin, "TC.SET", "users", "1", strings.Repeat("x", 64))
	cl.expect("-NOPERM user default has no permission to change rows of table a:b"+noAdmin, "TC.SET", "1", "1", strings.Repeat("x", 8))
	cl.expect("-ERR table (\"no\\r\\nne\") must be one of 3: …", "tc.set", "no\r\nne", "1", "x")
	// Replies of several parts: 100 rows of 200,000 bytes.
	want := rowsOf(20, 50_000)
	keys, rows := []string{"MGET"}, []string{"TC.GATHER", "wide"}
	for i := range 100 {
		keys, rows = append(keys, fmt.Sprintf("wide:%d", i%20)), append(rows, fmt.Sprint(i%20))
	}
	io.WriteString(cl, encoded(keys...)+encoded(rows...))
	skip := func(line string) {
		if got, err := cl.from.ReadString('\n'); err != nil || got != line {
			t.Fatalf("got %q, %v, want %q", got, err, line)
		}
	}
	got := make([]byte, len(want))
	skip("*100\r\n")
	for i := range 100 {
		skip("$200000\r\n")
		if _, err := io.ReadFull(cl.from, got[:200_000]); err != nil || !bytes.Equal(got[:200_000], want[i%20*200_000:][:200_000]) {
			t.Fatalf("row %d of a long MGET differs: %v", i, err)
		}
		skip("\r\n")
	}
	skip("$20000000\r\n")
	for i := range 5 {
		if _, err := io.ReadFull(cl.from, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("part %d of a long TC.GATHER differs: %v", i, err)
		}
	}
	skip("\r\n")
	cl.expect("+PONG", "PING")
}

// TestServer_Pipeline: GETs that are sent together become one Gather, replies come in order, and half a command holds back no reply.
func TestServer_Pipeline(t *testing.T) {
	c := open(t)
	_, addr := start(t, Options{Cache: c})
	cl := dial(t, addr)
	cl.expect("+PONG", "PING")
	before, _ := c.Stats()
	var all strings.Builder
	var want []string
	for i := range 100 {
		all.WriteString(encoded("GET", fmt.Sprintf("users:%d", 5*i)))
		want = append(want, quoted(5*i, 16))
		if i == 50 {
			all.WriteString(encoded("GET", "nothing") + encoded("PING", "x") + encoded("GET", "users:1000"))
			want = append(want, "-ERR key (\"nothing\") must be table:row", `"x"`, "null")
		}
	}
	half := encoded("GET", "users:1")
	io.WriteString(cl, all.String()+half[:10])
	for i, w := range want {
		if got := cl.reply(); got != w {
			t.Fatalf("reply %d: %s, want %s", i, got, w)
		}
	}
	io.WriteString(cl, half[10:])
	if got := cl.reply(); got != quoted(1, 16) {
		t.Errorf("the command that came in halves: %s", got)
	}
	after, _ := c.Stats()
	// Two runs of GETs, the last one, and further ones where the stream came in pieces.
	if n := after.Tables[0].Gathers - before.Tables[0].Gathers; n > 10 {
		t.Errorf("101 GETs took %d Gathers", n)
	}
}

func TestServer_Set(t *testing.T) {
	c := open(t)
	_, addr := start(t, Options{Cache: c, Users: Users{Admin: "secret"}})
	cl := dial(t, addr)
	cl.expect("-WRONGPASS…", "AUTH", "admin", "Secret")
	cl.expect("-NOPERM user default has no permission to change rows of table users (TC.SET): log in as one that may (AUTH USER PASSWORD)", "TC.SET", "users", "1", "x")
	cl.expect("+OK", "AUTH", "admin", "secret")
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	cl.expect("-ERR cache: row numbers out of range: row number (1004) must be at most 1000, the row after the last one of table users: rows are appended without a gap", "TC.SET", "users", "3", b, "1004", b)
	cl.expect(":0", "EXISTS", "users:1000", "users:1003", "users:1004")
	cl.expect(":1120", "DBSIZE")
	cl.expect("+OK", "TC.SET", "users", "3", a, "1001", a, "1000", b)
	cl.expect(fmt.Sprintf("[%q %q %q null]", a, b, a), "MGET", "users:3", "users:1000", "users:1001", "users:1002")
	cl.expect(":2", "EXISTS", "users:1000", "users:1001", "users:1002")
	cl.expect(":1122", "DBSIZE")
	cl.expect("-ERR value of row 3 (3 bytes) must be 64 bytes, a row of table users", "TC.SET", "users", "3", "abc")
	cl.expect("-ERR cache: row numbers out of range: row number (1010) at position 0 must be 0 to 1009…", "TC.SET", "users", "1010", a)
	cl.expect("-ERR row (\"-1\") must be decimal digits", "TC.SET", "users", "-1", a)
	cl.expect("-ERR wrong number of arguments for 'tc.set' command: a table, then rows and values in turn", "TC.SET", "users", "1", a, "2")
	cl.expect(fmt.Sprintf("%q", a), "GET", "users:3")
	cl.expect("+RESET", "RESET")
	cl.expect("-NOPERM…", "TC.SET", "users", "3", a)
}

// zeros is a source of 320 rows of 64 zero bytes. Its value is how many of them have been read.
type zeros int

func (n *zeros) Rows() int     { return 320 }
func (n *zeros) RowBytes() int { return 64 }
func (n *zeros) Close() error  { return nil }
func (n *zeros) Read(dst []byte) (int, error) {
	rows := min(320-int(*n), len(dst)/64)
	if *n += zeros(rows); rows == 0 {
		return 0, io.EOF
	}
	clear(dst[:64*rows])
	return rows, nil
}

// TestServer_SetDurable: TC.SETs of connections at the same time share the syncs of a durable log.
func TestServer_SetDurable(t *testing.T) {
	const clients, each = 16, 20
	var syncs atomic.Int64
	was := atomicfile.SyncFile
	t.Cleanup(func() { atomicfile.SyncFile = was })
	atomicfile.SyncFile = func(*os.File) error {
		syncs.Add(1)
		time.Sleep(4 * time.Millisecond)
		return nil
	}
	dir := filepath.Join(t.TempDir(), "users.tc")
	w, err := pages.CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	source := func() (pages.Source, error) { return new(zeros), nil }
	if _, err := pages.Pack(t.Context(), source, w, pages.PackOptions{Name: "users", DType: dtype.Int32, Codec: "none", PageBytes: 4 << 10}); err != nil {
		t.Fatal(err)
	}
	table, err := cache.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := cache.Options{Tables: []cache.Table{table.WithLog(filepath.Join(dir, "delta"), true)}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: cache.BackendHost}}
	c, err := cache.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_, addr := start(t, Options{Cache: c, Users: Users{Admin: "secret"}})
	var all sync.WaitGroup
	value := strings.Repeat("v", 64)
	for i := range clients {
		cl := dial(t, addr)
		cl.expect("+OK", "AUTH", "admin", "secret")
		all.Go(func() {
			for k := range each {
				if got := cl.ask("TC.SET", "users", strconv.Itoa(i*each+k), value); got != "+OK" {
					t.Error(got)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d updates, %d syncs", clients*each, syncs.Load())
	if n := syncs.Load(); n > clients*each/3 { // an eighth, but for connections that come late
		t.Errorf("%d syncs for %d updates of %d connections", n, clients*each, clients)
	}
	dial(t, addr).expect(fmt.Sprintf("[%q %q]", value, value), "MGET", "users:0", fmt.Sprintf("users:%d", clients*each-1))
}

func TestServer_Auth(t *testing.T) {
	s, addr := start(t, Options{Cache: open(t), Users: Users{Password: "read", Admin: "write"}})
	cl := dial(t, addr)
	cl.expect("-NOAUTH Authentication required.", "GET", "users:0")
	cl.expect("-NOAUTH Authentication required.", "NOSUCH")
	cl.expect("-NOAUTH HELLO must be called…", "HELLO", "3")
	cl.expect("-WRONGPASS…", "AUTH", "write")
	cl.expect("-WRONGPASS…", "AUTH", "default", "write")
	cl.expect("-WRONGPASS…", "AUTH", "admin", "read")
	cl.expect("-WRONGPASS…", "AUTH", "nobody", "")
	cl.expect("-WRONGPASS…", "HELLO", "3", "AUTH", "default", "x")
	cl.expect("-NOAUTH…", "PING")
	cl.expect("+OK", "AUTH", "read")
	cl.expect(quoted(0, 16), "GET", "users:0")
	cl.expect("-NOPERM…", "TC.SET", "users", "0", "x")
	cl.expect("+OK", "AUTH", "admin", "write")
	cl.expect("-ERR value of row 0…", "TC.SET", "users", "0", "x")
	s.SetUsers(Users{Password: "new", Admin: "new"})
	cl.expect("-ERR value of row 0…", "TC.SET", "users", "0", "x") // it stays logged in
	s.SetUsers(Users{Password: "new"})
	io.WriteString(cl, encoded("PING"))
	if got, err := io.ReadAll(cl.from); len(got) > 0 || err != nil {
		t.Errorf("a user that there is no more got %q, %v", got, err)
	}
	if n := s.endings.of(revoked); n != 1 {
		t.Errorf("%d connections are counted", n)
	}
	other := dial(t, addr)
	other.expect("-WRONGPASS…", "AUTH", "read")
	other.expect("-WRONGPASS…", "AUTH", "admin", "write")
	other.expect("-WRONGPASS…", "AUTH", "admin", "")
	other.expect("[\"server\" \"tensorcache\" \"version\" \"\" \"proto\" :3…", "HELLO", "3", "AUTH", "default", "new", "SETNAME", "me")
	other.expect(`"me"`, "CLIENT", "GETNAME")
	other.expect("null", "GET", "users:1000")
	// A long command of somebody unknown ends the connection.
	third := dial(t, addr)
	third.expect("-ERR Protocol error: bulk length (100000) must be at most 4…", "AUTH", strings.Repeat("x", 100_000))
	if _, err := third.from.ReadByte(); err == nil {
		t.Error("the connection goes on")
	}
}

// TestServer_FailedLogins: they are delayed, counted and logged, the latter once in a while. Closing the server does not wait for a delay.
func TestServer_FailedLogins(t *testing.T) {
	t.Parallel()
	log, text := logged()
	s, addr := start(t, Options{Cache: open(t), Users: Users{Password: "read"}, Logger: log})
	cl := dial(t, addr)
	begun := time.Now()
	for range 10 {
		cl.expect("-WRONGPASS…", "AUTH", "default", "guess")
	}
	if took := time.Since(begun); took < time.Second {
		t.Errorf("10 guesses took %v", took)
	}
	cl.expect("+OK", "AUTH", "read")
	if got := cl.ask("INFO", "stats"); !strings.Contains(got, `acl_access_denied_auth:10\r`) {
		t.Errorf("INFO: %s", got)
	}
	if got := text(); strings.Count(got, `level=WARN msg="resp: login failed" user=default from=127.0.0.1:`) != 1 {
		t.Errorf("the log has %s", got)
	}
	io.WriteString(cl, strings.Repeat(encoded("AUTH", "guess"), 1000))
	until(t, "a guess is delayed", func() bool { return s.logins.Failed() > 10 })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close beside delayed logins: %v", err)
	}
}

// TestServer_FailedLoginsTime: however many logins of an address fail, none holds its connection for longer than a client may take to log in.
func TestServer_FailedLoginsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{o: Options{Logger: slog.New(slog.DiscardHandler)}, open: t.Context()}
		s.SetUsers(Users{Password: "read"})
		begun := time.Now()
		c := &conn{server: s, net: from{}}
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				if err := c.login("default", []byte("guess")); err != errWrongPass {
					t.Errorf("error %v", err)
				}
			})
		}
		all.Wait()
		if took := time.Since(begun); took > loginTime+2*time.Second { // one that has a place is not cut short
			t.Errorf("took %v", took)
		}
	})
}

// from is a connection that only has an address.
type from struct{ net.Conn }

func (from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

// TestServer_HTTP: a web page cannot have its request's body run as commands. redis-server closes the connection at POST and Host:, too.
func TestServer_HTTP(t *testing.T) {
	t.Parallel()
	log, text := logged()
	s, addr := start(t, Options{Cache: open(t), Users: Users{Admin: "a"}, Logger: log})
	for i, request := range []string{
		"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\nAUTH admin a\r\n", "post /\r\nAUTH admin a\r\n", "PUT /x HTTP/1.0\r\n\r\nAUTH admin a\r\n",
		"Host: localhost\r\nAUTH admin a\r\n", encoded("POST", "/") + encoded("AUTH", "admin", "a"), "GET / HTTP/1.1\r\nAUTH admin a\r\n",
	} {
		cl := dial(t, addr)
		io.WriteString(cl, "PING\r\n"+request)
		if got, err := io.ReadAll(cl.from); string(got) != "+PONG\r\n" && len(got) > 0 {
			t.Errorf("%q got %q, %v", request, got, err)
		}
		until(t, "it is counted", func() bool { return s.endings.of(http) == int64(i+1) })
	}
	if got := text(); strings.Count(got, `level=WARN msg="resp: client cut off" from=127.0.0.1:`) != 1 || !strings.Contains(got, `error="resp: client speaks HTTP"`) {
		t.Errorf("the log has %s", got)
	}
	dial(t, addr).expect(`"HTTP/1.1"`, "ECHO", "HTTP/1.1")
}

// TestServer_Metrics: what INFO counts can be collected, too, until Close.
func TestServer_Metrics(t *testing.T) {
	s, addr := start(t, Options{Cache: open(t), Users: Users{Password: "read"}})
	reader := sdkmetric.NewManualReader()
	if err := s.measure(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))); err != nil {
		t.Fatal(err)
	}
	cl := dial(t, addr)
	cl.expect("-WRONGPASS…", "AUTH", "guess")
	cl.expect("+OK", "AUTH", "read")
	web := dial(t, addr)
	io.WriteString(web, "POST / HTTP/1.1\r\n")
	until(t, "it is cut off", func() bool { return s.endings.of(http) == 1 })
	collect := func() map[string]int64 {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		values := map[string]int64{}
		add := func(name string, points []metricdata.DataPoint[int64]) {
			for _, p := range points {
				reason, _ := p.Attributes.Value("reason")
				values[strings.TrimSuffix(name+"/"+reason.AsString(), "/")] = p.Value
			}
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Sum[int64]:
					add(m.Name, data.DataPoints)
				case metricdata.Gauge[int64]:
					add(m.Name, data.DataPoints)
				}
			}
		}
		return values
	}
	got := collect()
	for name, want := range map[string]int64{"logins.failed": 1, "connections": 2, "connections.cut/http": 1, "connections.cut/unread": 0, "commands": 2, "memory": 0} {
		if n, ok := got["tensorcache.resp."+name]; !ok || n != want {
			t.Errorf("%s is %d, want %d: %v", name, n, want, got)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := collect(); len(got) > 0 {
		t.Errorf("after Close: %v", got)
	}
}

func TestServer_Commands(t *testing.T) {
	c := open(t)
	_, addr := start(t, Options{Cache: c, Version: "1.2"})
	cl := dial(t, addr)
	cl.expect("-ERR AUTH <password> called without any password…", "AUTH", "x")
	cl.expect("+PONG", "ping")
	cl.expect(`"a b"`, "PING", "a b")
	cl.expect(`"x"`, "ECHO", "x")
	cl.expect("+OK", "SELECT", "0")
	cl.expect(`["save" ""]`, "CONFIG", "GET", "save")
	cl.expect("-ERR unknown subcommand 'SET'. Parameters are flags…", "CONFIG", "SET", "save", "")
	cl.expect("-ERR DB index is out of range", "SELECT", "1")
	cl.expect("-NOPROTO unsupported protocol version", "HELLO", "4")
	cl.expect("-ERR Syntax error in HELLO option 'X'", "HELLO", "2", "X")
	cl.expect(`["server" "tensorcache" "version" "1.2" "proto" :2 "id" :1 "mode" "standalone" "role" "master" "modules" []]`, "HELLO")
	cl.expect(":1", "CLIENT", "ID")
	cl.expect("null", "CLIENT", "GETNAME")
	cl.expect("+OK", "CLIENT", "SETNAME", "trainer-0")
	cl.expect("-ERR Client names cannot…", "CLIENT", "SETNAME", "a b")
	cl.expect("+OK", "CLIENT", "SETINFO", "LIB-NAME", "x")
	cl.expect(`"id=1 addr=127.0.0.1:…`, "CLIENT", "INFO")
	cl.expect("-ERR No such client", "CLIENT", "KILL", "1")
	cl.expect(fmt.Sprintf(":%d", len(commands)), "COMMAND", "COUNT")
	cl.expect(`[["get" :2 [+readonly +fast] :1 :1 :1 [+@read +@fast +@string] [] [["flags" [+RO +access] "begin_search" ["type" "index" "spec" ["index" :1]] "find_keys" ["type" "range" "spec" ["lastkey" :0 "keystep" :1 "limit" :0]]]] []] null]`, "COMMAND", "INFO", "GET", "nothing")
	cl.expect(`["mget" ["summary" "Rows; null for a row that does not exist and for a malformed key" "since" "1.0.0" "group" "string" "syntax" "MGET key [key ...]"]]`, "COMMAND", "DOCS", "mget")
	info := cl.ask("INFO")
	for _, want := range []string{"# Server\\r\\n", "tensorcache_version:1.2\\r\\n", "connected_clients:1\\r\\n", "blocked_clients:0\\r\\n", // redis-cli --stat shows these, and used_memory
		"table1:name=a:b,rows=100,row_bytes=8,dtype=int32,codec=none,rows_cached="} {
		if !strings.Contains(info, want) {
			t.Errorf("INFO lacks %s: %s", want, info)
		}
	}
	// A budget of 1 MiB, and 4 MB of rows, which all of it is used for.
	memory := func(cl *client) map[string]int64 {
		t.Helper()
		all := map[string]int64{}
		for _, field := range regexp.MustCompile(`\\n([a-z_]+):(\d+)\\r`).FindAllStringSubmatch(cl.ask("INFO", "memory"), -1) {
			all[field[1]], _ = strconv.ParseInt(field[2], 10, 64)
		}
		return all
	}
	if m := memory(cl); m["budget_bytes"] != 1<<20 || m["unallocated_bytes"] != 0 || m["payload_bytes"] == 0 || m["used_memory"] != m["host_bytes"]+m["budget_bytes"] {
		t.Errorf("INFO memory: %v", m)
	}
	// What a budget exceeds the rows by is not used.
	table, err := cache.FromBytes("few", dtype.Int32, rowsOf(10, 2), 8)
	if err != nil {
		t.Fatal(err)
	}
	few, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 1 << 20, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
	if err != nil {
		t.Fatal(err)
	}
	defer few.Close()
	_, fewAddr := start(t, Options{Cache: few})
	if m := memory(dial(t, fewAddr)); m["unallocated_bytes"] < 1<<19 || m["used_memory"] != m["host_bytes"]+m["budget_bytes"]-m["unallocated_bytes"] {
		t.Errorf("INFO memory of a budget that exceeds the rows: %v", m)
	}
	if got := cl.ask("INFO", "clients"); strings.Contains(got, "Server") || !strings.Contains(got, "connected_clients:1") {
		t.Errorf("INFO clients: %s", got)
	}
	cl.expect("+OK", "QUIT")
	if _, err := cl.from.ReadByte(); err != io.EOF {
		t.Errorf("after QUIT: %v", err)
	}
}

func TestServer_JSON(t *testing.T) {
	c := open(t)
	_, addr := start(t, Options{Cache: c})
	cl := dial(t, addr)
	cl.ask("MGET", "users:1", "users:2", "a:b:1")
	unquote := func(text string, to any) {
		t.Helper()
		var raw string
		if _, err := fmt.Sscanf(text, "%q", &raw); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := json.Unmarshal([]byte(raw), to); err != nil {
			t.Fatal(err)
		}
	}
	var s statjson.Stats
	unquote(cl.ask("TC.STATS"), &s)
	if s.Lookups != 3 || s.Tables[0].Lookups != 2 || s.Tables[1].Name != "a:b" || s.Hits+s.Misses != 3 {
		t.Errorf("%+v", s)
	}
	var e []statjson.Explanation
	unquote(cl.ask("TC.EXPLAIN", "a:b", "0", "99"), &e)
	if len(e) != 2 || e[1].Row != 99 || !e[1].Cached || e[1].StoredBytes != 8 {
		t.Errorf("%+v", e)
	}
	cl.expect("-ERR cache: row numbers out of range: …", "TC.EXPLAIN", "a:b", "100")
}

func TestServer_TLS(t *testing.T) {
	cert, pool := certificate(t)
	_, addr := start(t, Options{Cache: open(t), TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
	nc, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	cl := &client{t, nc, nil}
	cl.from = newReader(nc)
	cl.expect(quoted(5, 16), "GET", "users:5")
	plain := dial(t, addr)
	io.WriteString(plain, encoded("PING"))
	if b, _ := io.ReadAll(plain.from); bytes.Contains(b, []byte("PONG")) {
		t.Errorf("a client without TLS got %q", b)
	}
}

func TestServer_MaxClients(t *testing.T) {
	s, addr := start(t, Options{Cache: open(t), MaxClients: 2})
	a, b := dial(t, addr), dial(t, addr)
	a.expect("+PONG", "PING")
	b.expect("+PONG", "PING")
	third := dial(t, addr)
	if got := third.reply(); got != "-ERR max number of clients reached" {
		t.Errorf("the third got %s", got)
	}
	a.Close()
	for deadline := time.Now().Add(time.Minute); s.Clients() > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a client that has gone is still counted")
		}
	}
	dial(t, addr).expect("+PONG", "PING")
}

// TestServer_Close: idle connections end, commands under way are replied to, and one that never ends its reading is cut off.
func TestServer_Close(t *testing.T) {
	s, err := New(Options{Cache: open(t)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	idle, deaf := dial(t, l.Addr().String()), dial(t, l.Addr().String())
	idle.expect("+PONG", "PING")
	deaf.expect("+PONG", "PING")
	rows := []string{"TC.GATHER", "wide"}
	for range 1000 { // 200 MB, more than sockets hold
		rows = append(rows, "1")
	}
	io.WriteString(deaf, encoded(rows...))
	if _, err := deaf.from.ReadByte(); err != nil { // it is under way
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close with a client that does not read: %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := idle.from.ReadByte(); err != io.EOF {
		t.Errorf("the idle client: %v", err)
	}
	if n := s.Clients(); n != 0 {
		t.Errorf("%d clients after Close", n)
	}
	if s.life.Err() == nil {
		t.Error("calls of the cache go on after Close")
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it listens after Close")
	}
}

// TestServer_Cut: calls of the cache that are under way when Close waits no more end with it, such as an update that waits for batches.
func TestServer_Cut(t *testing.T) {
	s, addr := start(t, Options{Cache: open(t)})
	cl := dial(t, addr)
	cl.expect("+PONG", "PING")
	s.cut()
	for _, args := range [][]string{{"GET", "users:1"}, {"TC.GATHER", "users", "1"}} {
		cl.expect("-ERR context canceled", args...)
	}
	cl.expect("[-ERR context canceled -ERR context canceled null]", "MGET", "users:1", "a:b:1", "a:b:100")
}

// TestServer_Concurrent: many clients with commands of all kinds, while rows change.
func TestServer_Concurrent(t *testing.T) {
	_, addr := start(t, Options{Cache: open(t), Users: Users{Admin: "a"}})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			cl := dial(t, addr)
			if i == 0 {
				cl.expect("+OK", "AUTH", "admin", "a")
			}
			for j := range 200 {
				if i == 0 {
					cl.expect("+OK", "TC.SET", "users", fmt.Sprint(j), strings.Repeat("z", 64))
					continue
				}
				cl.expect("["+quoted(500+j, 16)+" "+quoted(j%100, 2)+"]", "MGET", fmt.Sprintf("users:%d", 500+j), fmt.Sprintf("a:b:%d", j%100))
				if j%50 == 0 {
					cl.ask("TC.STATS")
					cl.ask("INFO")
				}
			}
		})
	}
	wg.Wait()
}

func TestCheckNames(t *testing.T) {
	if err := CheckNames([]string{"users", "a:b", "1a", "users:1"}); err != nil {
		t.Error(err)
	}
	for want, names := range map[string][]string{
		`resp: name of table 0 ("12") must not be a number: a key would name another table by it`:                   {"12"},
		`resp: name of table 1 ("99999999999999999999") must not be a number: a key would name another table by it`: {"a", "99999999999999999999"},
		`resp: name of table 1 ("a") must not be given twice`:                                                       {"a", "a"},
		`resp: name of table 0 must not be empty`:                                                                   {""},
	} {
		if err := CheckNames(names); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", names, err, want)
		}
	}
}

// TestServer_Idle: a connection gives back what long commands took.
func TestServer_Idle(t *testing.T) {
	s, addr := start(t, Options{Cache: open(t)})
	cl := dial(t, addr)
	keys := []string{"MGET"}
	for i := range 50_000 {
		keys = append(keys, fmt.Sprintf("a:b:%d", i%100))
	}
	cl.ask(keys...)
	io.WriteString(cl, strings.Repeat(encoded("GET", "wide:1"), 50))
	for range 50 {
		cl.reply()
	}
	s.mu.Lock()
	var one *conn
	for c := range s.mu.conns {
		one = c
	}
	s.mu.Unlock()
	cl.Close()
	for s.Clients() > 0 { // then its memory is nobody's but the test's
		time.Sleep(time.Millisecond)
	}
	rows := 0
	for _, r := range one.gather.rows {
		rows += cap(r)
	}
	if held := cap(one.out) + cap(one.gather.buf) + cap(one.reader.buf) + 16*cap(one.entries) + 16*cap(one.waiting) + 8*rows + 32*cap(one.reader.args); held > 1<<20 {
		t.Errorf("an idle connection holds %d bytes", held)
	}
}
