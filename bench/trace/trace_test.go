package trace

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/packed"
)

// readAll reads a trace in pieces of several sizes.
func readAll(r Reader) (all []Request, err error) {
	sizes := []int{1, 7, 4096, 1000}
	for i := 0; ; i++ {
		buf := make([]Request, sizes[i%len(sizes)])
		n, err := r.Read(buf)
		all = append(all, buf[:n]...)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if n == 0 {
			return all, errors.New("read nothing without an error")
		}
	}
}

// readBytes reads a trace in memory.
func readBytes(name string, b []byte, format string) ([]Request, error) {
	s, err := newSource(name, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer s.close()
	r, err := newReader(s, Options{Format: format})
	if err != nil {
		return nil, err
	}
	return readAll(r)
}

// readFile reads a trace's file.
func readFile(t *testing.T, path string) []Request {
	t.Helper()
	r, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// requests returns n random requests of everything that tct holds.
func requests(n int, seed uint64) []Request {
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]Request, n)
	for i := range all {
		all[i] = Request{
			ID: r.Uint64N(50), Size: int64(r.Uint32()), Time: int64(i / 10), Next: Unknown, Op: Op(r.IntN(int(numOps))), Outcome: Outcome(r.IntN(int(numOutcomes))),
		}
		switch r.IntN(20) {
		case 0:
			all[i].ID = math.MaxUint64 - r.Uint64N(3)
		case 1:
			all[i].ID = r.Uint64()
		}
	}
	next := map[uint64]int64{}
	for i := n - 1; i >= 0; i-- {
		if all[i].Next = Never; next[all[i].ID] > 0 {
			all[i].Next = next[all[i].ID]
		}
		next[all[i].ID] = int64(i)
	}
	return all
}

// only returns the requests as a format keeps them.
func only(all []Request, k Keeps) []Request {
	all = slices.Clone(all)
	for i := range all {
		r := &all[i]
		if !k.Sizes {
			r.Size = 0
		}
		if !k.Times {
			r.Time = 0
		}
		if !k.Ops {
			r.Op = Get
		}
		if !k.Next {
			r.Next = Unknown
		}
		if !k.Outcomes {
			r.Outcome = UnknownOutcome
		}
	}
	return all
}

// TestRoundTrip: every format that can be written gives back what it says it keeps, plain and compressed, and is recognized.
func TestRoundTrip(t *testing.T) {
	names := map[string]string{"tct": "x.tct", "oraclegeneral": "x.oracleGeneral", "cachelib": "x.csv", "arc": "x.arc", "lirs": "x.lirs", "ids": "x.txt"}
	for _, f := range formats {
		if f.encode == nil {
			continue
		}
		for _, n := range []int{1, 2, blockRequests, blockRequests + 1, 30_000} {
			for _, packed := range []string{"", ".gz", ".zst"} {
				want := requests(n, uint64(n))
				if !f.keeps.Ops {
					for i := range want {
						want[i].Op = Get
					}
				}
				path := filepath.Join(t.TempDir(), names[f.name]+packed)
				w, err := Create(path, Options{})
				if err != nil {
					t.Fatal(err)
				}
				for rest := want; len(rest) > 0; {
					k := min(len(rest), 777)
					if err := w.Write(rest[:k]); err != nil {
						t.Fatal(err)
					}
					rest = rest[k:]
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				r, err := Open(path, Options{})
				if err != nil {
					t.Fatal(err)
				}
				got, err := readAll(r)
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				if a := Describe(r); a.Format != f.name || a.Keeps != f.keeps {
					t.Errorf("%s%s is taken for %+v", f.name, packed, a)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				want = only(want, f.keeps)
				if f.name == "arc" {
					for i := range got {
						got[i].Time = 0
					}
				}
				if i := firstDifference(got, want); i >= 0 || len(got) != len(want) {
					t.Fatalf("%s%s of %d: %d requests; number %d is %+v, want %+v", f.name, packed, n, len(got), i, at(got, i), at(want, i))
				}
				if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
					t.Errorf("%s%s leaves %v", f.name, packed, left)
				}
			}
		}
	}
}

func firstDifference(a, b []Request) int {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func at(all []Request, i int) Request {
	if i < 0 || i >= len(all) {
		return Request{}
	}
	return all[i]
}

// TestGolden: files that were written once are read as they were, and the tct one is written like that again.
func TestGolden(t *testing.T) {
	want := []Request{
		{ID: 5, Size: 512, Next: 2, Time: 100},
		{ID: 18446744073709551615, Size: 4096, Next: Never, Time: 100},
		{ID: 5, Size: 512, Next: Never, Time: 101},
		{ID: 6, Size: 512, Next: 4, Time: 103},
		{ID: 6, Size: 512, Next: Never, Time: 103},
	}
	outcomes := slices.Clone(want)
	for i := range outcomes {
		outcomes[i].Outcome = []Outcome{Miss, Miss, Hit, Miss, Hit}[i]
	}
	outcomes[1].Op = Set
	for name, want := range map[string][]Request{
		"small.tct":           outcomes,
		"small.oracleGeneral": want,
		"small.csv":           only(want, Keeps{Sizes: true, Times: true}),
		"small.arc":           only(want, Keeps{}),
		"small.lirs":          only(want, Keeps{}),
		"small.ids":           only(want, Keeps{}),
		"small.jsonl":         only(want, Keeps{Times: true}),
	} {
		got := readFile(t, filepath.Join("testdata", name))
		if name == "small.arc" {
			for i := range got {
				got[i].Time = 0
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
	}
	var b bytes.Buffer
	w, err := NewBlockWriter(&b, Header{Sampling: ByID, Rate: 0.5, Tick: 1000})
	if err != nil {
		t.Fatal(err)
	}
	w.Lose(3)
	if err := errors.Join(w.Write(outcomes), w.Close()); err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("testdata/small.tct")
	if err != nil || !bytes.Equal(golden, b.Bytes()) {
		t.Errorf("testdata/small.tct differs from what is written now, %d bytes: % x (%v)", b.Len(), b.Bytes(), err)
	}
}

// TestBlocks_EveryCut: a tct trace cut anywhere yields what came before in whole blocks, then ErrTruncated with the
// begin of what is incomplete.
func TestBlocks_EveryCut(t *testing.T) {
	want := requests(100, 3)
	whole, ends := blocks(t, want, 25)
	for cut := range len(whole) {
		got, err := readBytes("x.tct", whole[:cut], "tct")
		var e *Error
		if !errors.Is(err, ErrTruncated) || !errors.As(err, &e) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		complete := 0
		for complete < len(ends) && ends[complete] <= cut {
			complete++
		}
		offset := 0
		if cut >= headerBytes {
			offset = headerBytes
		}
		if complete > 0 {
			offset = ends[complete-1]
		}
		if n := min(25*complete, len(want)); !slices.Equal(got, want[:n]) || e.Offset != int64(offset) {
			t.Fatalf("cut at %d: %d requests, want %d; %v, want offset %d", cut, len(got), n, err, offset)
		}
	}
}

// TestBlocks_EveryBit: no flipped bit of a tct trace goes unnoticed.
func TestBlocks_EveryBit(t *testing.T) {
	want := requests(60, 4)
	whole, _ := blocks(t, want, 30)
	for bit := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		got, err := readBytes("x.tct", b, "tct")
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTruncated) {
			t.Fatalf("bit %d: %v", bit, err)
		}
		if !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("bit %d: wrong requests before %v", bit, err)
		}
	}
}

// blocks returns a tct trace with a block for every n requests, and where header's and blocks' successors begin.
func blocks(t *testing.T, all []Request, n int) (b []byte, ends []int) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewBlockWriter(&out, Header{})
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(all, n) {
		if err := errors.Join(w.Write(part), w.Flush()); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, out.Len())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), ends
}

// TestBlocks_Lost: losses are where they were noted, however many.
func TestBlocks_Lost(t *testing.T) {
	var out bytes.Buffer
	w, err := NewBlockWriter(&out, Header{Sampling: ByAccess, Rate: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	one := []Request{{ID: 1, Next: Unknown}}
	w.Write(one)
	w.Lose(5)
	w.Write(one)
	w.Lose(7)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := newSource("x", &out)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newReader(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]Request, 10)
	for i, want := range []int64{0, 5, 12} {
		n, err := r.Read(buf)
		if a := Describe(r); n != min(1, 2-i) || a.Lost != want || a.Header.Sampling != ByAccess || a.Header.Rate != 0.25 {
			t.Errorf("read %d: %d requests, %v, %+v, want %d lost", i, n, err, a, want)
		}
	}
}

func TestOpen_BadInput(t *testing.T) {
	record := make([]byte, oracleBytes)
	for i := range 8 {
		record[16+i] = 0xff
	}
	past := bytes.Clone(record)
	copy(past[16:], []byte{1, 0, 0, 0, 0, 0, 0, 0})
	all := strings.Join(Formats(), ", ")
	for _, c := range []struct{ name, text, format, want string }{
		{"x.csv", "", "", "trace: x.csv: offset 0: file (0 bytes) must not be empty: truncated"},
		{"x", "a b c", "", "trace: x: unsuitable format: neither the content nor the name is of a known format: " + all},
		{"x", "\x00\x01\x02", "", "trace: x: unsuitable format: neither the content nor the name is of a known format: " + all},
		{"x", "1\n", "nothing", `trace: unsuitable format: format ("nothing") must be one of ` + all},
		{"x", "1\n2\n\n18446744073709551616\n", "", `trace: x:4: offset 5: line ("18446744073709551616") must be one ID, 0 to 2^64 - 1 in decimal digits`},
		{"x", "1\n-2\n", "", `trace: x:2: offset 2: line ("-2") must be one ID, 0 to 2^64 - 1 in decimal digits`},
		{"x", "1 1 0 0\n1 2 3\n", "", "trace: x:2: offset 8: fields (3) must be 4: start, count, ignore, request"},
		{"x", "1 1 0 0\n1 0 0 1\n", "", "trace: x:2: offset 8: count (0) must be 1 to 2^32 - 1, and the last ID from 1 on below 2^64"},
		{"x", "18446744073709551615 2 0 0\n", "", "trace: x:1: offset 0: count (2) must be 1 to 2^32 - 1, and the last ID from 18446744073709551615 on below 2^64"},
		{"x", "1 1 0 z\n", "arc", `trace: x:1: offset 0: field 4 ("z") must be 0 to 2^64 - 1 in decimal digits`},
		{"x", `{"hash_ids": [1, -2]}`, "", "trace: x:1: offset 0: line must be a JSON object with hash_ids of 0 to 2^64 - 1: json: cannot unmarshal number -2 into Go struct field .hash_ids of type uint64"},
		{"x", `{"hash_ids": [1, 2]}` + "\n" + `{"hash_ids": [1, `, "", "trace: x:2: offset 21: line must be a JSON object with hash_ids of 0 to 2^64 - 1: unexpected end of JSON input"},
		{"x", `{"timestamp": 3}`, "", "trace: x:1: offset 0: line must have hash_ids"},
		{"x", "key,op,size\n1,GET,10\n2,PUT,10\n", "", `trace: x:3: offset 21: op ("PUT") must be GET, GET_LEASE, SET, SET_LEASE or DELETE`},
		{"x", "key,op,size\n1,GET\n", "", "trace: x:2: offset 12: line (2 fields) must have the header's 3"},
		{"x", "key,op,size\n1,GET,\n", "", `trace: x:2: offset 12: size ("") must be 0 to 9223372036854775807`},
		{"x", "key,op,size,op_count\n1,GET,1,0\n", "", "trace: x:2: offset 21: op_count (\"0\") must be 1 to 4294967295"},
		{"x", "key,op,size,op_count\n1,GET,1,4294967296\n", "", `trace: x:2: offset 21: op_count ("4294967296") must be 1 to 4294967295`},
		{"x", "key,op,size\n,GET,1\n", "", "trace: x:2: offset 12: key must not be empty"},
		{"x.oracleGeneral", string(record) + string(record[:5]), "", "trace: x.oracleGeneral: offset 24: record (5 bytes) must have 24: truncated"},
		{"x.oracleGeneral", string(record) + string(past), "", "trace: x.oracleGeneral: offset 24: next access (1) must be -1 or come after record 2"},
		{"x", "TCTRACE\n", "", "trace: x: offset 0: header (8 bytes) must have 48: truncated"},
		{"x", "12345678" + strings.Repeat("\x00", 40), "tct", `trace: x: offset 0: first bytes ("12345678") must be "TCTRACE\n"`},
		{"x", strings.Repeat("1", maxLine+1), "ids", "trace: x:1: offset 0: line must be at most 65536 bytes long"},
		{"x", strings.Repeat("1", packed.BufferBytes+maxLine), "ids", "trace: x:1: offset 0: line must be at most 65536 bytes long"},
	} {
		_, err := readBytes(c.name, []byte(c.text), c.format)
		if err == nil || err.Error() != c.want {
			t.Errorf("%.40q as %q:\n got %v\nwant %s", c.text, c.format, err, c.want)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none.csv"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// TestCreate_KeepsDevices: a trace must not take the place of what is no file, such as /dev/null.
func TestCreate_KeepsDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tct")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Create(path, Options{})
	if want := "trace: " + path + ": must be a file, or not exist: it is of type d---------"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestOpen_CompressedCut: a compressed trace that ends early is an error that names the offset, after what could be read.
func TestOpen_CompressedCut(t *testing.T) {
	for _, packed := range []string{".gz", ".zst"} {
		path := filepath.Join(t.TempDir(), "x.oracleGeneral"+packed)
		w, err := Create(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		all := requests(200_000, 5)
		for i := range all {
			all[i].Op, all[i].Outcome = Get, UnknownOutcome
		}
		if err := errors.Join(w.Write(all), w.Close()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readBytes(path, b[:len(b)/2], "")
		var e *Error
		if !errors.Is(err, ErrTruncated) || !errors.As(err, &e) || e.Offset < int64(24*len(got)) {
			t.Errorf("%s: %v", packed, err)
		}
		if len(got) == 0 || !slices.Equal(got, all[:len(got)]) {
			t.Errorf("%s: %d requests before that", packed, len(got))
		}
		cut := filepath.Join(t.TempDir(), "cut"+packed)
		if err := os.WriteFile(cut, b[:len(b)/2], 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := Open(cut, Options{Format: "oraclegeneral"})
		if err != nil {
			t.Fatal(err)
		}
		block := make([]Request, 4096)
		for err == nil {
			_, err = r.Read(block)
		}
		if err := r.Close(); err != nil { // the fault is reported once
			t.Errorf("%s: Close: %v", packed, err)
		}
		b[len(b)/2] ^= 0x55
		if _, err := readBytes(path, b, ""); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTruncated) {
			t.Errorf("%s with a flipped byte: %v", packed, err)
		}
	}
}

func TestOpen_Detects(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"x", "# comment\n7\n", "ids"}, {"x.lirs", "*\n7\n", "lirs"}, {"x.trc", "7\n", "lirs"}, {"x.arc", "7\n", "ids"},
		{"x", "\xef\xbb\xbf1 2 0 0\r\n", "arc"}, {"x.txt", `{"hash_ids":[]}`, "mooncake"},
		{"x", "op_time,key,key_size,op,op_count,size\n", "cachelib"}, {"x", "abc,GET,3,1\n", "cachelib"},
		{"X.OracleGeneral.bin.zst", "\x00", "oraclegeneral"}, {"w01.oracleGeneral", "\x00", "oraclegeneral"}, {"x.oracleGeneral", "TCTRACE\n", "tct"},
	} {
		s, err := newSource(c.name, strings.NewReader(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := newReader(s, Options{}); err != nil || r.format.name != c.want {
			t.Errorf("%s %q: %v, %v", c.name, c.text, r, err)
		}
	}
}

// TestCacheLib: columns in any order, op_count repeats, keys that are no numbers, operations.
func TestCacheLib(t *testing.T) {
	got, err := readBytes("x", []byte("op_time,key,key_size,op,op_count,size,cache_hits,ttl\n"+
		"3,17,8,GET,3,100,1,0\n3,abc,8,SET_LEASE,1,200,,60\n4,abc,8,get_lease,,200,,\n5,007,8,DELETE,2,0,0,0\n"), "")
	h, zero := keyID([]byte("abc")), keyID([]byte("007"))
	want := []Request{
		{17, 100, Unknown, 3, Get, 0}, {17, 100, Unknown, 3, Get, 0}, {17, 100, Unknown, 3, Get, 0}, {h, 200, Unknown, 3, Set, 0},
		{h, 200, Unknown, 4, Get, 0}, {zero, 0, Unknown, 5, Delete, 0}, {zero, 0, Unknown, 5, Delete, 0},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if h == zero || zero == 7 || h != 0xe71fa2190541574b {
		t.Errorf("IDs %#x and %#x must be FNV-1a hashes", h, zero)
	}
}

// TestOpen_Shared: the traces that reference figures were made of hold what those say.
func TestOpen_Shared(t *testing.T) {
	dir := os.Getenv("TENSORCACHE_TRACES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "traces")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("traces are absent (%s); set TENSORCACHE_TRACES to their folder", dir)
	}
	for _, c := range []struct {
		file          string
		requests, ids int64
	}{
		{"cloudphysics.oracleGeneral.bin", 113_872, 48_974}, {"arc_oltp.gz", 914_145, 186_880}, {"lirs_gli.gz", 6_015, 2_529},
		{"mooncake_conversation.jsonl.gz", 288_500, 182_790},
	} {
		path := filepath.Join(dir, c.file)
		r, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Summarize(context.Background(), r)
		r.Close()
		if err != nil || s.Requests != c.requests || s.IDs != c.ids || s.Gets != c.requests {
			t.Errorf("%s: %+v, %v", c.file, s, err)
		}
	}
	// What libCacheSim wrote is what is written, next accesses included.
	cloud := filepath.Join(dir, "cloudphysics.oracleGeneral.bin")
	again := filepath.Join(t.TempDir(), "x.oracleGeneral")
	w, err := Create(again, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := readFile(t, cloud)
	for i := range all {
		all[i].Next = Unknown
	}
	if err := errors.Join(w.Write(all), w.Close()); err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(cloud)
	if b, _ := os.ReadFile(again); !bytes.Equal(a, b) {
		t.Error("cloudphysics is written otherwise than libCacheSim wrote it")
	}
}

// TestCreate_Errors: nothing appears under the name before the trace is complete.
func TestCreate_Errors(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	create := func(name string, o Options, r Request) error {
		w, err := Create(in(name), o)
		if err != nil {
			return err
		}
		if err := w.Write([]Request{{ID: 1, Next: Unknown}, r}); err != nil {
			if closed := w.Close(); closed != err {
				t.Errorf("%s: Close returns %v after %v", name, closed, err)
			}
			return err
		}
		w.Discard()
		return nil
	}
	plain := Request{ID: 2, Next: Unknown}
	all := strings.Join(Formats(), ", ")
	for _, c := range []struct {
		name string
		o    Options
		r    Request
		want string
	}{
		{"x.bin", Options{}, plain, "trace: " + in("x.bin") + ": unsuitable format: the name must end like one of .tct, .oraclegeneral, .oraclegeneral.bin, .csv, .arc, .lis, .lirs, .trc, .ids, .txt, or a format be given"},
		{"x.jsonl", Options{}, plain, "trace: " + in("x.jsonl") + ": unsuitable format: mooncake cannot be written"},
		{"x.tct", Options{Format: "y"}, plain, `trace: unsuitable format: format ("y") must be one of ` + all},
		{"x.ids", Options{}, Request{Op: Delete}, "trace: " + in("x.ids") + ": unsuitable format: ids cannot hold a delete"},
		{"x.oracleGeneral", Options{}, Request{Size: 1 << 32}, "trace: " + in("x.oracleGeneral") + ": unsuitable format: size (4294967296) and time (0) must be 0 to 2^32 - 1 in oraclegeneral"},
		{"x.tct", Options{}, Request{Next: 1}, "trace: " + in("x.tct") + ": request 1: unsuitable format: next access (1) must come after it"},
		{"x.csv", Options{}, Request{Time: -1}, "trace: " + in("x.csv") + ": unsuitable format: time (-1) must not be negative in cachelib"},
		{"x.tct", Options{}, plain, ""},
	} {
		err := create(c.name, c.o, c.r)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := Create(filepath.Join(dir, "none", "x.tct"), Options{}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "none", "x.tct")) {
		t.Errorf("missing folder: %v", err)
	}
}

// full is a disk without room after so many bytes.
type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

func TestBlockWriter_FullDisk(t *testing.T) {
	w, err := NewBlockWriter(&full{100}, Header{})
	if err != nil {
		t.Fatal(err)
	}
	first := w.Write(requests(3*blockRequests, 1))
	if closed := w.Close(); first == nil || closed == nil || first.Error() != "trace: no space left on device" || closed.Error() != first.Error() {
		t.Errorf("Write: %v, Close: %v", first, closed)
	}
	if _, err := NewBlockWriter(&full{10}, Header{}); err == nil {
		t.Error("the header was written")
	}
}

func TestCopy_Filter(t *testing.T) {
	all := requests(5000, 6)
	whole, _ := blocks(t, all, 999)
	for _, f := range []Filter{{}, {Gets: true}, {Misses: true}, {Limit: 4097}, {Limit: 1}, {Gets: true, Limit: 100}} {
		var want []Request
		for _, r := range all {
			if (f.Gets || f.Misses) && r.Op != Get || f.Misses && r.Outcome != Miss || f.Limit > 0 && int64(len(want)) == f.Limit {
				continue
			}
			if f != (Filter{}) {
				r.Next = Unknown
			}
			want = append(want, r)
		}
		s, _ := newSource("x", bytes.NewReader(whole))
		r, err := newReader(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "y.tct")
		w, err := Create(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := Copy(context.Background(), w, r, f)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		if got := readFile(t, path); !slices.Equal(got, want) || c.Written != int64(len(want)) {
			t.Errorf("%+v: %d requests, %+v, want %d", f, len(got), c, len(want))
		}
	}
}

// endless repeats a text up to so many bytes.
type endless struct {
	text     string
	at, size int
}

func (e *endless) Read(p []byte) (int, error) {
	n := min(len(p), e.size-e.at)
	if n == 0 {
		return 0, io.EOF
	}
	for i := 0; i < n; {
		i += copy(p[i:n], e.text[(e.at+i)%len(e.text):])
	}
	e.at += n
	return n, nil
}

// TestRead_Streams: however long a trace is, reading it allocates no more.
func TestRead_Streams(t *testing.T) {
	var record [oracleBytes]byte
	for i := range 8 {
		record[16+i] = 0xff
	}
	for format, text := range map[string]string{
		"ids": "12345678\n", "arc": "12345678 9 0 4\n", "cachelib": "1234,GET,100,2,8\n", "oraclegeneral": string(record[:]),
	} {
		s, err := newSource("x", &endless{text, 0, 32 << 20 / len(text) * len(text)})
		if err != nil {
			t.Fatal(err)
		}
		r, err := newReader(s, Options{Format: format})
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]Request, 1000)
		if _, err := r.Read(buf); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n := 0
		for err == nil {
			var k int
			k, err = r.Read(buf)
			n += k
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; err != io.EOF || n < 1<<20 || got > 1<<20 {
			t.Errorf("%s: %d bytes allocated for %d requests, %v", format, got, n, err)
		}
	}
}

func ExampleOpen() {
	r, err := Open("testdata/small.csv", Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	buf := make([]Request, 100)
	for {
		n, err := r.Read(buf)
		for _, q := range buf[:n] {
			fmt.Println(q.Op, q.ID, q.Size)
		}
		if err != nil { // io.EOF, if nothing was wrong
			break
		}
	}
	// Output:
	// get 5 512
	// get 18446744073709551615 4096
	// get 5 512
	// get 6 512
	// get 6 512
}

// lcs writes requests as libCacheSim does, in a version of its format.
func lcs(version int, requests []Request) []byte {
	b := make([]byte, lcsHeaderBytes)
	copy(b, lcsMagic)
	copy(b[lcsHeaderBytes-8:], lcsMagic)
	binary.LittleEndian.PutUint64(b[8:], uint64(version))
	for i, r := range requests {
		b = binary.LittleEndian.AppendUint32(b, uint32(r.Time))
		b = binary.LittleEndian.AppendUint64(b, r.ID)
		if version < 3 {
			b = binary.LittleEndian.AppendUint32(b, uint32(r.Size))
		} else {
			b = binary.LittleEndian.AppendUint64(b, uint64(r.Size))
		}
		if version > 1 {
			b = binary.LittleEndian.AppendUint32(b, 1|uint32(i)<<8) // a read of tenant i
		}
		if version > 2 {
			b = binary.LittleEndian.AppendUint32(b, 3600)
		}
		next := int64(-1)
		if r.Next >= 0 {
			next = r.Next + 1
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(next))
		if version > 3 {
			b = append(b, bytes.Repeat([]byte{7}, 4<<(version-4))...) // features
		}
	}
	return b
}

// TestLCS_Versions: all versions of the format hold the same requests; faults name the offset.
func TestLCS_Versions(t *testing.T) {
	t.Parallel()
	want := []Request{{ID: 5, Size: 100, Time: 1, Next: 2}, {ID: math.MaxUint64, Size: 7, Time: 1, Next: Never}, {ID: 5, Size: 100, Time: 3, Next: Never}}
	for i := range 3000 { // more than one piece
		want = append(want, Request{ID: uint64(i), Size: int64(i + 1), Time: 9, Next: Never})
	}
	for version := 1; version <= 8; version++ {
		b := lcs(version, want)
		for _, format := range []string{"", "lcs"} {
			if got, err := readBytes("x", b, format); err != nil || !slices.Equal(got, want) {
				t.Errorf("version %d: %d requests, %v", version, len(got), err)
			}
		}
		if got, err := readBytes("x", b[:len(b)-1], ""); !errors.Is(err, ErrTruncated) || len(got) != len(want)-1 {
			t.Errorf("version %d, cut short: %d requests, %v", version, len(got), err)
		}
	}
	wide := []Request{{ID: 1, Size: 1 << 40, Next: Never}}
	if got, err := readBytes("x", lcs(3, wide), ""); err != nil || !slices.Equal(got, wide) {
		t.Errorf("a size of 2^40: %v, %v", got, err)
	}
	unmarked := lcs(1, wide)
	unmarked[lcsHeaderBytes-1] = 0
	for text, b := range map[string][]byte{
		"trace: x: offset 8: version (9) must be 1 to 8":                           lcs(9, nil),
		"trace: x: offset 0: header must begin and end with libCacheSim's mark":    unmarked,
		"trace: x: offset 0: header (100 bytes) must have 8192: truncated":         lcs(1, nil)[:100],
		"trace: x: offset 8192: size (-1) must not be negative":                    lcs(3, []Request{{Size: -1}}),
		"trace: x: offset 8192: next access (1) must be -1 or come after record 1": lcs(2, []Request{{Next: 0}}),
	} {
		if _, err := readBytes("x", b, "lcs"); err == nil || err.Error() != text {
			t.Errorf("%v, want %s", err, text)
		}
	}
}

// TestCSV_Columns: columns, delimiters and headers as libCacheSim takes them.
func TestCSV_Columns(t *testing.T) {
	t.Parallel()
	read := func(text, params string) ([]Request, error) {
		s, err := newSource("x", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		r, err := newReader(s, Options{Params: params})
		if err != nil {
			return nil, err
		}
		return readAll(r)
	}
	want := []Request{{ID: 7, Size: 100, Time: 1, Next: Unknown}, {ID: 9, Size: 20, Time: 2, Next: Unknown}}
	for _, c := range []struct{ text, params string }{
		{"7,100,1\n9,20,2\n", "obj-id-col=1,obj-size-col=2,time-col=3"},
		{"time,op,size,name,id\n1.5,get,100,a,7\n2,set,20,b,9", "time-col=1, obj-id-col=5, obj-size-col=3"},
		{"1;7;100\n2;9;20\n", "time-col=1, obj-id-col=2, obj-size-col=3, delimiter=;, has-header=false"},
		{"1,7,100\n2,9,20\n", "time-col=1, obj_id_col=2, size-col=3, delimiter=,, has-header=false"},
		{"1\t7\t100\n2\t9\t20\n", `time-col=1, obj-id-col=2, obj-size-col=3, delimiter=\t, obj-id-is-num=true`},
		{"1|7|100\r\n2|9|20\r\n", "time-col=1, obj-id-col=2, obj-size-col=3"},
		{"9999999999999\t1\t1\n1\t0x7\t100\n2\t9\t20\n", "time-col=1, obj-id-col=2, obj-size-col=3, obj-id-is-num=true, has-header=true"},
		{"1,\"7\",\"100\"\n2,9,20\n", "time-col=1, obj-id-col=2, obj-size-col=3"},
		{"\xef\xbb\xbfat,id,size\n\n1, 7 , 100\n2,9,20", "time-col=1, obj-id-col=2, obj-size-col=3"},
	} {
		if got, err := read(c.text, c.params); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %s: %+v, %v", c.text, c.params, got, err)
		}
	}
	if got, err := read("a,1\nb,1\na,1\n07,1\n7,1\n", "obj-id-col=1, has-header=false"); err != nil || len(got) != 5 || got[0].ID == got[1].ID || got[0] != got[2] || got[3].ID == got[4].ID {
		t.Errorf("IDs that are text: %+v, %v", got, err)
	}
	for _, c := range []struct{ text, params, want string }{
		{"1,2\n", "time-col=1", "trace: obj-id-col must say which column of the CSV file has the IDs"},
		{"1,2\n", "obj-id-col=0", `trace: obj-id-col ("0") must be a column from 1 to 1000`},
		{"1,2\n", "obj-id-col=1, color=3", `trace: trace parameter ("color") must be obj-id-col, obj-size-col, time-col, delimiter, has-header or obj-id-is-num`},
		{"1,2\n", "obj-id-col", `trace: trace parameter ("obj-id-col") must be name=value`},
		{"1,2\n", "obj-id-col=1, has-header=maybe", `trace: has-header ("maybe") must be true or false`},
		{"1,2\n", "obj-id-col=1, delimiter=abc", `trace: delimiter ("abc") must be one character`},
		{"1,2\n", "obj-id-col=3", `trace: x:1: offset 0: line (2 fields, divided by ',') must have 3`},
		{"1,2\n1,\n", "obj-id-col=2", `trace: x:2: offset 4: ID must not be empty`},
		{"1,2\n1,a\n", "obj-id-col=2, obj-id-is-num=true", `trace: x:2: offset 4: ID ("a") must be 0 to 2^64 - 1`},
		{"1,2\n1,-2\n", "obj-id-col=1, obj-size-col=2", `trace: x:2: offset 4: size ("-2") must be 0 to 2^63 - 1 in decimal digits`},
		{"1,NaN\n", "obj-id-col=1, time-col=2, has-header=false", `trace: x:1: offset 0: time ("NaN") must be a number from 0 to 2^62`},
		{"1,\"2\n", "obj-id-col=1", `trace: x:1: offset 0: line must be CSV: parse error on line 1, column 5: extraneous or missing " in quoted-field`},
	} {
		if _, err := read(c.text, c.params); err == nil || err.Error() != c.want {
			t.Errorf("%q, %s: %v, want %s", c.text, c.params, err, c.want)
		}
	}
	if _, err := Open("none", Options{Format: "arc", Params: "obj-id-col=1"}); err == nil || !errors.Is(err, ErrFormat) {
		t.Errorf("columns of another format: %v", err)
	}
}
