package resp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// read returns the commands of a stream, and the error after them.
func read(from io.Reader, l limits) (commands [][]string, err error) {
	r := reader{from: bufio.NewReaderSize(from, readBytes), account: account{holder: &holder{memory: newMemory(1 << 30)}}}
	for {
		args, err := r.next(l)
		if err != nil {
			return commands, err
		}
		var words []string
		for _, a := range args {
			words = append(words, string(a))
		}
		commands = append(commands, words)
	}
}

func TestReader_Commands(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	const text = "*1\r\n$4\r\nPING\r\n" + "\r\n" + "*0\r\n" + "*-1\r\n" + "PING  a\tb\r\n" + "get 0:1\n" + "*3\r\n$0\r\n\r\n$2\r\n\r\n\r\n$1\r\n*\r\n"
	stream := text + "*2\r\n$3\r\nGET\r\n$100000\r\n" + long + "\r\n"
	want := [][]string{{"PING"}, {"PING", "a", "b"}, {"get", "0:1"}, {"", "\r\n", "*"}, {"GET", long}}
	for name, from := range map[string]io.Reader{
		"whole": strings.NewReader(stream), "by bytes": iotest.OneByteReader(strings.NewReader(stream)), "by halves": iotest.HalfReader(strings.NewReader(stream)),
	} {
		got, err := read(from, clientLimits)
		if err != io.EOF || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %d commands, %v", name, len(got), err)
		}
	}
}

func TestReader_BadInput(t *testing.T) {
	for text, want := range map[string]string{
		"*x\r\n":                               "invalid multibulk length",
		"*-0\r\n":                              "invalid multibulk length",
		"*\r\n":                                "invalid multibulk length",
		"*1\r\n4\r\nPING\r\n":                  "expected '$', got '4'",
		"*1\r\n$x\r\n":                         "invalid bulk length",
		"*1\r\n$-1\r\n":                        "invalid bulk length",
		"*1\r\n$4\r\nPINGxx":                   "a bulk string must end in CRLF",
		"*1\r\n$9223372036854775807\r\nab\r\n": "bulk length (9223372036854775807) must be at most 67108864",
		"*1\r\n$9223372036854775808\r\nab\r\n": "invalid bulk length",
		"*9223372036854775807\r\n":             "multibulk length (9223372036854775807) must be at most 1048578",
		"*2\r\n$67108864\r\n":                  "", // it may come yet
		"*" + strings.Repeat("1", 30):          "",
		"*" + strings.Repeat("1", 40) + "\r\n": "too big a line",
		strings.Repeat("word ", 4000) + "\r\n": "too big a line",
	} {
		_, err := read(strings.NewReader(text), clientLimits)
		if want == "" {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%.40q: %v", text, err)
			}
			continue
		}
		if _, ok := errors.AsType[errProtocol](err); !ok || err.Error() != "Protocol error: "+want {
			t.Errorf("%.40q:\n got %v\nwant %s", text, err, want)
		}
	}
	// Before authentication.
	for _, text := range []string{"*17\r\n", "*1\r\n$4097\r\n", "*2\r\n$4000\r\n" + strings.Repeat("x", 4000) + "\r\n$97\r\n", strings.Repeat("a ", 17) + "\r\n"} {
		if _, err := read(strings.NewReader(text), unknownLimits); err == nil || !strings.HasPrefix(err.Error(), "Protocol error: ") {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

// TestReader_Memory: what a client announces is not allocated before it comes, and what was long is given back.
func TestReader_Memory(t *testing.T) {
	r := reader{from: bufio.NewReader(strings.NewReader("*2\r\n$67108000\r\n" + strings.Repeat("x", 1000)))}
	if _, err := r.next(clientLimits); !errors.Is(err, io.ErrUnexpectedEOF) || cap(r.buf) > 16<<10 {
		t.Errorf("%v: %d bytes are kept of 1,000", err, cap(r.buf))
	}
	m := newMemory(1 << 30)
	r = reader{account: account{holder: &holder{memory: m}}, from: bufio.NewReader(strings.NewReader("*1\r\n$1000000\r\n" + strings.Repeat("x", 1_000_000) + "\r\nPING\r\n"))}
	for i := range 2 {
		if _, err := r.next(clientLimits); err != nil {
			t.Fatal(err)
		}
		if held := m.held(); i == 0 && held < 1_000_000 || i == 1 && held != 0 {
			t.Errorf("%d bytes are counted after command %d", held, i)
		}
	}
	if cap(r.buf) > keepBytes {
		t.Errorf("%d bytes are kept after a long command", cap(r.buf))
	}
}

// FuzzReader reads a stream whole and byte by byte, which must give the same, within the limits; what was read, written again, reads the same.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{"*1\r\n$4\r\nPING\r\n", "PING\r\n*0\r\n", "*2\r\n$3\r\nGET\r\n$9223372036854775807\r\n", "*-1\r\n$", "*1\r\n$-1\r\n", "\n\r\n\x00*", "*3\r\n$0\r\n\r\n$1\r\n\n\r\n$2\r\n\r\n\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l := limits{args: 8, bytes: 64}
		whole, err := read(bytes.NewReader(b), l)
		parts, err2 := read(iotest.OneByteReader(bytes.NewReader(b)), l)
		if fmt.Sprint(whole) != fmt.Sprint(parts) || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("%q: %q, %v; by bytes %q, %v", b, whole, err, parts, err2)
		}
		var again reply
		for _, args := range whole {
			if len(args) == 0 || len(args) > l.args {
				t.Fatalf("%d arguments", len(args))
			}
			again.array(len(args))
			for _, a := range args {
				again.text(a)
			}
		}
		if got, err := read(bytes.NewReader(again.out), clientLimits); err != io.EOF || fmt.Sprint(got) != fmt.Sprint(whole) {
			t.Fatalf("%q read as %q, written again as %q, %v", b, whole, got, err)
		}
	})
}
