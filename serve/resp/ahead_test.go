package resp

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// deafPipeline returns commands of some 20 MB, and their replies of some 40 MB: more than sockets hold of either. The key of each GET has 4,000 digits.
func deafPipeline() (commands string, replies []byte) {
	users, wide := rowsOf(1000, 16), rowsOf(20, 50_000)
	var b strings.Builder
	var r reply
	mget := []string{"MGET"}
	r.array(200)
	for i := range 200 {
		mget = append(mget, fmt.Sprintf("wide:%d", i%20))
		r.bulk(wide[i%20*200_000:][:200_000])
	}
	b.WriteString(encoded(mget...))
	for i := range 20_000 {
		b.WriteString(encoded("GET", fmt.Sprintf("users:%01000d", i%1000)))
		r.bulk(users[i%1000*64:][:64])
	}
	return b.String(), r.out
}

// receive reads replies, which must be these.
func (c *client) receive(want []byte) {
	c.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c.from, got); err != nil || !bytes.Equal(got, want) {
		c.t.Fatalf("%d bytes of replies (%d) differ: %v", n, len(want), err)
	}
}

// TestServer_PipelineBeforeReplies: a client may send a whole pipeline before it reads the first reply.
func TestServer_PipelineBeforeReplies(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	for name, security := range map[string]*tls.Config{"plain": nil, "TLS": {Certificates: []tls.Certificate{cert}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, addr := start(t, Options{Cache: open(t), TLS: security})
			cl := dial(t, addr)
			if security != nil {
				cl.Conn = tls.Client(cl.Conn, &tls.Config{RootCAs: pool, ServerName: "localhost"})
				cl.from = newReader(cl.Conn)
			}
			commands, replies := deafPipeline()
			if _, err := io.WriteString(cl, commands); err != nil {
				t.Fatalf("the pipeline is not taken: %v", err)
			}
			if s.memory.held() == 0 {
				t.Error("what is read ahead is not counted")
			}
			cl.receive(replies)
			cl.expect("+PONG", "PING")
			if held := s.memory.held(); held != 0 {
				t.Errorf("%d bytes are counted after the pipeline", held)
			}
		})
	}
}

// TestServer_PipelineIdleTime: a client whose reply waits is not idle, so its pipeline is taken whole.
func TestServer_PipelineIdleTime(t *testing.T) {
	t.Parallel()
	const idle = time.Second
	_, addr := start(t, Options{Cache: open(t), IdleTime: idle})
	commands, replies := deafPipeline()
	cl := dial(t, addr)
	cl.SetDeadline(time.Now().Add(30 * time.Second)) // less than writeTime
	io.WriteString(cl, commands[:1<<20])
	time.Sleep(idle + idle/2)
	if _, err := io.WriteString(cl, commands[1<<20:]); err != nil {
		t.Fatalf("the pipeline is not taken: %v", err)
	}
	cl.receive(replies)
}

// TestServer_Unread: a client that sends for ever and reads nothing is cut off, and holds nothing afterwards. It is counted and logged.
func TestServer_Unread(t *testing.T) {
	t.Parallel()
	log, text := logged()
	s, addr := startWith(t, Options{Cache: open(t), Logger: log}, func(s *Server) { s.writeTime = 500 * time.Millisecond })
	cl := dial(t, addr)
	var err error
	for one, _ := deafPipeline(); err == nil; {
		_, err = io.WriteString(cl, one)
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Fatal("it is not cut off")
	}
	until(t, "the connection is forgotten", func() bool { return s.Clients() == 0 })
	if n, held := s.endings.of(unread), s.memory.held(); n != 1 || held != 0 {
		t.Errorf("%d clients are counted, %d bytes are held", n, held)
	}
	if got := text(); !strings.Contains(got, `level=WARN msg="resp: client cut off" from=127.0.0.1:`) ||
		!strings.Contains(got, `error="resp: client takes no replies for 500ms; of its commands `) {
		t.Errorf("the log has %s", got)
	}
	other := dial(t, addr)
	if got := other.ask("INFO", "stats"); !strings.Contains(got, `client_output_buffer_limit_disconnections:1\r`) {
		t.Errorf("INFO: %s", got)
	}
}

// TestServer_AheadLimit: no more than the limit is read ahead, and what was is replied to when the client reads.
func TestServer_AheadLimit(t *testing.T) {
	t.Parallel()
	s, addr := start(t, Options{Cache: open(t)})
	cl := dial(t, addr)
	cl.expect("+PONG", "PING")
	s.mu.Lock()
	for c := range s.mu.conns {
		c.ahead.limit.Store(1 << 20)
	}
	s.mu.Unlock()
	commands, replies := deafPipeline()
	sent := make(chan error)
	go func() {
		_, err := io.WriteString(cl, commands)
		sent <- err
	}()
	until(t, "1 MiB is read ahead", func() bool { return s.memory.held() >= 1<<20-freeBytes })
	select {
	case err := <-sent:
		t.Fatalf("the pipeline is taken: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if held := s.memory.held(); held > 4<<20 { // with the reply, and the buffers to make it
		t.Errorf("%d bytes are held", held)
	}
	cl.receive(replies)
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestServer_MaxMemory: when all clients together hold too much, the one that holds most is cut off, and short commands are served.
func TestServer_MaxMemory(t *testing.T) {
	t.Parallel()
	log, text := logged()
	s, addr := start(t, Options{Cache: open(t), Logger: log, MaxMemory: 20 << 20})
	small := dial(t, addr)
	var all []*client
	for i := range 8 { // each sends a part of a command, the first one most
		cl := dial(t, addr)
		all = append(all, cl)
		n := 1_000_000
		if i == 0 {
			n *= 2
		}
		before := s.memory.held()
		if _, err := io.WriteString(cl, "*2\r\n$4\r\nECHO\r\n$3000000\r\n"+strings.Repeat("x", n)); err != nil {
			t.Fatal(err)
		}
		until(t, "it is read, or one is cut off", func() bool { return s.memory.held() > before+int64(2*n)-2*freeBytes || s.endings.of(evicted) > 0 })
		if held := s.memory.held(); held > s.memory.most {
			t.Fatalf("%d bytes are held", held)
		}
		small.expect(quoted(7, 16), "GET", "users:7")
	}
	if _, err := all[0].from.ReadByte(); err == nil {
		t.Error("the client that holds most is not cut off")
	}
	until(t, "it is counted", func() bool { return s.endings.of(evicted) > 0 })
	if n := s.endings.of(evicted); n > 4 {
		t.Errorf("%d clients are cut off", n)
	}
	if got := text(); !strings.Contains(got, "error=\"resp: connection held most (") || !strings.Contains(got, "when commands and replies of all must hold at most 20971520") {
		t.Errorf("the log has %s", got)
	}
	for _, cl := range all {
		cl.Close()
	}
	until(t, "nothing is held", func() bool { return s.memory.held() == 0 })
	small.expect("+PONG", "PING")
}
