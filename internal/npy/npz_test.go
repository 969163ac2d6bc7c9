package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// Offsets of fields in a zip's central directory record and local header.
const (
	centralFlags, centralMethod, centralCRC, centralPacked, centralSize, centralLocal = 8, 10, 16, 20, 24, 42

	localHeaderBytes = 30
)

// central returns the first central directory record of an archive.
func central(b []byte) []byte { return b[bytes.Index(b, []byte("PK\x01\x02")):] }

// matrix returns an .npy of rank 2, vector one of rank 1.
func matrix(t testing.TB) []byte {
	return written(t, dtype.Uint8, []int{2, 3}, []byte{1, 2, 3, 4, 5, 6})
}
func vector(t testing.TB) []byte { return written(t, dtype.Uint8, []int{6}, []byte{6, 5, 4, 3, 2, 1}) }

func TestOpen_ChoosesArray(t *testing.T) {
	const d = zip.Deflate
	m, v := matrix(t), vector(t)
	object := file(1, dict("'|O'", "False", "(2, 3)"), nil)
	for _, c := range []struct {
		name    string
		members []member
		suffix  string
		minRank int
		prefer  []string
		want    string // array, or
		wantErr string
	}{
		{"named", []member{{"a.npy", d, m}, {"b.npy", d, v}}, ":b", 1, []string{"a"}, "b", ""},
		{"named with colon", []member{{"a:b.npy", d, m}}, ":a:b", 1, nil, "a:b", ""},
		{"named, in a folder", []member{{"x/a.npy", d, m}, {"a.npy", d, v}}, ":x/a", 2, nil, "x/a", ""},
		{"named, absent", []member{{"a.npy", d, m}, {"b.npy", d, v}}, ":c", 1, nil, "", `array ("c") must be one of "a", "b"`},
		{"named, low rank", []member{{"a.npy", d, m}, {"b.npy", d, v}}, ":b", 2, nil, "", "a.npz:b: rank (1) of shape (6,) must be at least 2"},
		{"preferred", []member{{"a.npy", d, m}, {"b.npy", d, m}}, "", 2, []string{"x", "b", "a"}, "b", ""},
		{"preferred, low rank", []member{{"a.npy", d, m}, {"b.npy", d, v}}, "", 2, []string{"b"}, "", "a.npz:b: rank (1)"},
		{"single", []member{{"a.npy", d, m}}, "", 2, []string{"x"}, "a", ""},
		{"single, low rank", []member{{"a.npy", d, v}}, "", 2, nil, "", "a.npz:a: rank (1) of shape (6,) must be at least 2"},
		{"only of the rank", []member{{"a.npy", d, v}, {"b.npy", d, m}, {"c.npy", d, v}}, "", 2, []string{"x"}, "b", ""},
		{"only readable", []member{{"a.npy", d, object}, {"b.npy", d, m}}, "", 2, nil, "b", ""},
		{"several", []member{{"a.npy", d, m}, {"b.npy", d, m}}, "", 2, []string{"x"}, "",
			`arrays of rank 2 or more (2) must be one, or be chosen as FILE.npz:ARRAY from "a", "b"`},
		{"none of the rank", []member{{"a.npy", d, v}, {"b.npy", d, v}}, "", 2, nil, "", `arrays of rank 2 or more (0) must be one`},
		{"corrupt among them", []member{{"a.npy", d, m}, {"b.npy", d, v[:20]}}, "", 2, nil, "", "a.npz:b: header bytes (20) must be 128"},
		{"other members", []member{{"readme.txt", d, []byte("hi")}, {"dir/", zip.Store, nil}, {"a.npy", d, m}}, "", 2, nil, "a", ""},
		{"no arrays", []member{{"readme.txt", d, []byte("hi")}}, "", 2, nil, "", "archive (1 members) must have an array"},
		{"without .npy", []member{{"readme", d, []byte("hi")}, {"a", d, m}}, "", 2, nil, "a", ""},
		{"with and without .npy", []member{{"a", d, m}, {"a.npy", d, m}}, "", 2, nil, "", `array ("a") must occur once`},
		{"no members", nil, "", 2, nil, "", "archive (0 members) must have an array"},
		{"duplicates", []member{{"a.npy", d, m}, {"a.npy", d, v}}, ":a", 1, nil, "", `array ("a") must occur once`},
		{"unprintable", []member{{"a.npy", d, m}}, ":b\n", 1, nil, "", `array ("b\n") must be one of "a"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := save(t, "a.npz", archiveOf(t, c.members...))
			r, err := Open(path+c.suffix, c.minRank, c.prefer...)
			if c.wantErr != "" {
				checkText(t, err, c.wantErr)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if r.Name() != path+":"+c.want {
				t.Errorf("opened %s, want array %s", r.Name(), c.want)
			}
			if _, err := readRows(r, 1); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOpen_ListsAtMostSome(t *testing.T) {
	var members []member
	for i := range 20 {
		members = append(members, member{fmt.Sprintf("a%d.npy", i), zip.Store, matrix(t)})
	}
	_, err := openBytes(archiveOf(t, members...), choice{minRank: 2})
	checkText(t, err, `"a15", and 4 more`)
}

// Both the directory and the member's bytes may lie, in either direction.
func TestOpen_RejectsArchives(t *testing.T) {
	le := binary.LittleEndian
	big := written(t, dtype.Uint8, []int{100, 10}, make([]byte, 1000))
	claims := file(1, dict("'|u1'", "False", "(100, 1000000)"), nil)
	for _, c := range []struct {
		name  string
		m     member
		patch func(b []byte)
		want  string
	}{
		{"encrypted", member{"a.npy", zip.Deflate, big}, func(b []byte) { central(b)[centralFlags] |= 1 },
			"mem:a: member flags (0x0009) must not say encrypted"},
		{"method", member{"a.npy", zip.Deflate, big}, func(b []byte) { central(b)[centralMethod] = 14 },
			"compression method (14) must be 0 (stored) or 8 (deflate)"},
		{"local header elsewhere", member{"a.npy", zip.Deflate, big}, func(b []byte) { le.PutUint32(central(b)[centralLocal:], 1<<30) },
			"reading the member's local header"},
		{"no local header", member{"a.npy", zip.Deflate, big}, func(b []byte) { b[0] = 'P'; b[3] = 9 },
			"reading the member's local header"},
		{"packed size beyond the archive", member{"a.npy", zip.Deflate, big}, func(b []byte) { le.PutUint32(central(b)[centralPacked:], 1<<20) },
			"compressed bytes (1048576) must be at most the"},
		{"stored sizes differ", member{"a.npy", zip.Store, big}, func(b []byte) { le.PutUint32(central(b)[centralSize:], 1000) },
			"member bytes (1000) must match the 1128 bytes that it is stored in"},
		{"size beyond deflate", member{"a.npy", zip.Deflate, big}, func(b []byte) { le.PutUint32(central(b)[centralSize:], 1<<31) },
			"member bytes (2147483648) must match the"},
		{"size too large", member{"a.npy", zip.Deflate, big}, func(b []byte) { le.PutUint32(central(b)[centralSize:], 2000) },
			"trailing bytes (872) must be 0"},
		{"size too small", member{"a.npy", zip.Deflate, big}, func(b []byte) { le.PutUint32(central(b)[centralSize:], 1127) },
			"data bytes (999) must be 1000"},
		{"no npy in it", member{"a.npy", zip.Deflate, []byte("hello world")}, func([]byte) {}, `mem:a: first bytes ("hello ") must be`},
		{"empty member", member{"a.npy", zip.Deflate, nil}, func([]byte) {}, "mem:a: file (0 bytes) must not be empty"},
		{"claims of the header", member{"a.npy", zip.Deflate, claims}, func([]byte) {}, "data bytes (0) must be 100000000"},
		{"corrupt deflate", member{"a.npy", zip.Deflate, big}, func(b []byte) { b[localHeaderBytes+len("a.npy")] |= 7 }, "mem:a: reading the header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := archiveOf(t, c.m)
			c.patch(b)
			_, err := openBytes(b, choice{})
			checkText(t, err, c.want)
		})
	}
}

// A directory that claims more than the member inflates to, within deflate's ratio,
// is noticed only when the data end.
func TestReader_ArchiveEndsEarly(t *testing.T) {
	for _, order := range []string{"False", "True"} {
		npy := file(1, dict("'|u1'", order, "(100, 10)"), make([]byte, 600))
		b := archiveOf(t, member{"a.npy", zip.Deflate, npy})
		binary.LittleEndian.PutUint32(central(b)[centralSize:], uint32(len(npy)+400))
		_, err := openAll(b, choice{})
		checkText(t, err, "must be 1000 for shape (100, 10) of uint8: truncated")
	}
}

func TestReader_BadCRC(t *testing.T) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		b := archiveOf(t, member{"a.npy", method, matrix(t)})
		// Not the real one, and what zip takes for "none".
		binary.LittleEndian.PutUint32(central(b)[centralCRC:], 0)
		r, err := openBytes(b, choice{})
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, r.RowBytes())
		if n, err := r.Read(buf); n != 1 || err != nil {
			t.Errorf("method %d: first row = %d, %v", method, n, err)
		}
		n, err := r.Read(buf)
		if n != 0 || !errors.Is(err, zip.ErrChecksum) {
			t.Errorf("method %d: last row = %d, %v, want the checksum's error", method, n, err)
		}
		checkText(t, err, "mem:a: reading after 6 of 6 data bytes: zip: checksum error")
	}
}

func TestReader_CorruptDeflateData(t *testing.T) {
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	b := archiveOf(t, member{"a.npy", zip.Deflate, written(t, dtype.Uint8, []int{1 << 10, 1 << 10}, data)})
	for i := 2000; i < 2100; i++ {
		b[i] ^= 0x55
	}
	_, err := openAll(b, choice{})
	checkText(t, err, "npy: mem:a: reading")
}
