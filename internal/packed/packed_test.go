package packed

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os/exec"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
)

// member returns a gzip member.
func member(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(content)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestNewReader_GzipMembers: members follow each other, and zeros behind the last one are padding. Anything else behind one is an error.
func TestNewReader_GzipMembers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	long := make([]byte, 3*BufferBytes)
	for i := range long {
		long[i] = byte(r.Uint32())
	}
	one, other, empty := member(t, []byte("one")), member(t, long), member(t, nil)
	zeros := func(n int) []byte { return make([]byte, n) }
	for name, c := range map[string]struct {
		data, want []byte
		err        error
	}{
		"one member":              {one, []byte("one"), nil},
		"members":                 {bytes.Join([][]byte{one, empty, other, one}, nil), bytes.Join([][]byte{[]byte("one"), long, []byte("one")}, nil), nil},
		"a zero":                  {append(bytes.Clone(one), 0), []byte("one"), nil},
		"zeros of several blocks": {append(bytes.Clone(other), zeros(2*BufferBytes+5)...), long, nil},
		"zeros behind members":    {bytes.Join([][]byte{one, other, zeros(512)}, nil), append([]byte("one"), long...), nil},
		"zeros and a member":      {bytes.Join([][]byte{one, zeros(512), one}, nil), []byte("one"), gzip.ErrHeader},
		"other bytes":             {append(bytes.Clone(one), "garbage that is long enough"...), []byte("one"), gzip.ErrHeader},
		"a short header":          {append(bytes.Clone(one), 0x1f, 0x8b, 8), []byte("one"), io.ErrUnexpectedEOF},
		"a byte":                  {append(bytes.Clone(one), 0x1f), []byte("one"), io.ErrUnexpectedEOF},
		"cut off":                 {one[:len(one)-3], []byte("one"), io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			for _, from := range []io.Reader{bytes.NewReader(c.data), iotest.OneByteReader(bytes.NewReader(c.data))} {
				z, free, err := NewReader(from)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(z)
				var of *Error
				if !bytes.Equal(got, c.want) || !errors.Is(err, c.err) || err != nil && (!errors.As(err, &of) || of.Method != "gzip") {
					t.Errorf("%d bytes, %v, want %d, %v", len(got), err, len(c.want), c.err)
				}
				if _, again := z.ReadByte(); again == nil || c.err != nil && !errors.Is(again, c.err) {
					t.Errorf("read again: %v, want %v", again, err)
				}
				free()
			}
			if path, err := exec.LookPath("gzip"); err == nil && c.err == nil { // the command takes it, too
				cmd := exec.Command(path, "-dc")
				cmd.Stdin = bytes.NewReader(c.data)
				if got, err := cmd.Output(); err != nil || !bytes.Equal(got, c.want) {
					t.Errorf("gzip: %d bytes, %v", len(got), err)
				}
			}
		})
	}
}
