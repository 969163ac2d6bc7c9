package resp

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// recorded is a connection that sends given bytes and keeps what it gets.
type recorded struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (r *recorded) Read(b []byte) (int, error)       { return r.in.Read(b) }
func (r *recorded) Write(b []byte) (int, error)      { return r.out.Write(b) }
func (r *recorded) Close() error                     { return nil }
func (r *recorded) SetReadDeadline(time.Time) error  { return nil }
func (r *recorded) SetWriteDeadline(time.Time) error { return nil }
func (r *recorded) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (r *recorded) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }

// FuzzServer sends bytes to a server. Each command has one well-formed reply, and an error of the protocol ends the connection.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{
		"GET users:1\r\nMGET a:b:1 wide:2\r\n", "HELLO 3 AUTH admin a SETNAME x\r\nTC.STATS\r\nCOMMAND\r\n", "AUTH admin a\r\n*4\r\n$6\r\nTC.SET\r\n$3\r\na:b\r\n$1\r\n1\r\n$8\r\n12345678\r\n",
		"*2\r\n$3\r\nGET\r\n$99999999999999999999\r\n", "GET users:99999999999999999999\r\nEXISTS :\r\nGET :1\r\nGET 0:\r\n", "TC.GATHER a:b 1 2\r\nTC.EXPLAIN 1 5\r\nRESET\r\nQUIT\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n", "PING\r\nPUT / HTTP/1.1\r\nPING\r\n", "MULTI\r\nGET users:1\r\nMGET users:1 x\r\nEXEC\r\nWATCH users:1\r\nMULTI\r\nNOSUCH\r\nEXEC\r\n", "SCAN 0 MATCH *[1 COUNT 100\r\nKEYS a:b:?\r\nGETRANGE users:1 -3 9\r\nOBJECT HELP\r\n",
		"HELLO 3\r\nCLIENT TRACKING ON OPTIN\r\nCLIENT CACHING YES\r\nCLIENT LIST\r\nCLIENT KILL ID 1\r\nSLOWLOG GET\r\nLATENCY HISTOGRAM\r\nACL CAT\r\nCOMMAND\r\n", "INFO all\r\nCLIENT INFO\r\nCOMMAND DOCS\r\nCLIENT SETNAME \xff\r\n", "tc.gather wide 0 1 2 3 4 5 6 7 8 9\r\nget users:0\r\nget users:1\r\nping x\r\n",
	} {
		f.Add([]byte(seed))
	}
	c := open(f)
	s, err := New(Options{Cache: c, Users: Users{Admin: "a"}})
	if err != nil {
		f.Fatal(err)
	}
	s.shut() // failed logins are not delayed
	f.Fuzz(func(t *testing.T, b []byte) {
		before := s.endings.of(http)
		commands, err := read(bytes.NewReader(b), clientLimits)
		r := &recorded{in: bytes.NewReader(b)}
		one := newConn(s, r)
		one.serve()
		replies, from := 0, &client{t: t, from: newReader(bytes.NewReader(r.out.Bytes()))}
		for {
			if _, err := from.from.Peek(1); err != nil {
				break
			}
			from.reply() // fails on one that is not well-formed
			replies++
		}
		want := len(commands)
		if _, ok := err.(errProtocol); ok {
			want++
		}
		if replies != want && !one.quit && s.endings.of(http) == before {
			t.Fatalf("%q: %d commands, %d replies: %q", b, want, replies, r.out.Bytes())
		}
	})
}
