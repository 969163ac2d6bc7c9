package pages

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// golden compares bytes with those of a file in testdata, which has them in hexadecimal, 32 a line. With UPDATE_GOLDEN it writes the file.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	want := goldenFile(t, name, got)
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what earlier versions wrote", name)
	}
	return want
}

// goldenFile returns the bytes of a file in testdata.
func goldenFile(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		var b strings.Builder
		for rest := got; len(rest) > 0; rest = rest[min(32, len(rest)):] {
			fmt.Fprintf(&b, "%x\n", rest[:min(32, len(rest))])
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// goldenRows are 40 rows of 12 bytes: zeros, which every stage shrinks, and row numbers.
func goldenRows() []byte {
	b := make([]byte, 40*12)
	for i := range 40 {
		binary.LittleEndian.PutUint32(b[12*i:], uint32(i*i))
	}
	return b
}

// TestFormat_Golden: pages, index, manifest and checkpoint are byte for byte what they were, and are read.
func TestFormat_Golden(t *testing.T) {
	entries := []uint32{12, 5 | entryCompressed, 12}
	stored := append(append(append([]byte("raw row zero"), "short\x00\x00\x00"...), "raw row two."...), "behind"...)
	page := golden(t, "page", appendPage(nil, 7, entries, stored, nil))
	p, _, err := parsePage(page, 7, 12, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"raw row zero", "short", "raw row two."} {
		if b, compressed, err := p.Row(i); err != nil || string(b) != want || compressed != (i == 1) {
			t.Errorf("row %d: %q, %v, %v", i, b, compressed, err)
		}
	}
	long := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	for _, s := range []Stage{StageZstd, StageLZ4, StagePlanes} {
		stage, err := newStager(s, dtype.Float32)
		if err != nil {
			t.Fatal(err)
		}
		// Other versions of the libraries may compress to other bytes.
		b := goldenFile(t, "page-"+s.String(), appendPage(nil, 0, []uint32{16_000}, long, stage))
		p, _, err := parsePage(b, 0, 16_000, nil)
		if err != nil || Stage(b[5]) != s {
			t.Fatal(err)
		}
		if row, _, err := p.Row(0); err != nil || !bytes.Equal(row, long) {
			t.Error(err)
		}
	}
	order, err := OrderOf([]int64{39, 7}, 40)
	if err != nil {
		t.Fatal(err)
	}
	s := packMemory(t, goldenRows(), 12, PackOptions{Name: "golden", Codec: "none", Stage: "none", DType: dtype.Float32, Order: order})
	golden(t, "index", s.g.parts[PartIndex])
	golden(t, "order", s.g.parts[PartOrder])
	b, err := s.Manifest().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var m Manifest
	if err := m.UnmarshalBinary(golden(t, "manifest", b)); err != nil || m != *s.Manifest() {
		t.Errorf("%+v, %v", m, err)
	}
	r := &resumable{key: [32]byte{1, 2, 3}, codec: "ibp4", stage: StageLZ4, metadata: []byte("metadata")}
	c := checkpoint{buffer: encodeCheckpoint(r)}
	c.add(&packedGroup{pageRows: 5, longest: 99, stored: 1000, raw: 3}, []indexPage{{90, 0x1234}, {80, 0x5678}})
	c.add(&packedGroup{pageRows: 6, longest: 98, stored: 1, raw: 4}, []indexPage{{70, 0x9abc}})
	got, n := parseCheckpoint(golden(t, "checkpoint", c.buffer), r.key)
	if got == nil || int(n) != len(c.buffer) || got.stored != 1001 || got.raw != 7 || got.longest != 99 || fmt.Sprint(got.groups, got.pages) != "[5 6] [{90 4660} {80 22136} {70 39612}]" {
		t.Errorf("%+v, %d of %d bytes", got, n, len(c.buffer))
	}
}

// TestCheckpoint_Torn: of a file that was cut anywhere, whole groups are read, and how long they are.
func TestCheckpoint_Torn(t *testing.T) {
	r := &resumable{codec: "none"}
	c := checkpoint{buffer: encodeCheckpoint(r)}
	ends := []int{len(c.buffer)}
	for i := range 3 {
		c.add(&packedGroup{pageRows: 1 + i}, []indexPage{{uint32(40 + i), 1}})
		ends = append(ends, len(c.buffer))
	}
	for cut := range len(c.buffer) + 1 {
		whole := -1
		for i, end := range ends {
			if cut >= end {
				whole = i
			}
		}
		got, n := parseCheckpoint(c.buffer[:cut], r.key)
		if whole < 0 {
			if got != nil {
				t.Fatalf("%d bytes were taken", cut)
			}
			continue
		}
		if got == nil || len(got.groups) != whole || int(n) != ends[whole] {
			t.Fatalf("%d bytes: %+v, %d, want %d groups", cut, got, n, whole)
		}
	}
	damaged := bytes.Clone(c.buffer)
	damaged[ends[1]+3] ^= 1
	if got, n := parseCheckpoint(damaged, r.key); len(got.groups) != 1 || int(n) != ends[1] {
		t.Errorf("%+v, %d", got, n)
	}
}

// TestParsePage_EveryBit: a page with any bit changed, or cut anywhere, is refused.
func TestParsePage_EveryBit(t *testing.T) {
	page := appendPage(nil, 7, []uint32{12, 12}, []byte("raw row zeroraw row one."), nil)
	for i := range len(page) * 8 {
		b := bytes.Clone(page)
		b[i/8] ^= 1 << (i % 8)
		if _, _, err := parsePage(b, 7, 12, nil); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d: %v", i, err)
		}
	}
	for n := range len(page) {
		if _, _, err := parsePage(page[:n], 7, 12, nil); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if _, _, err := parsePage(page, 8, 12, nil); err == nil || err.Error() != "corrupt page: position of the first row (7) must be 8" {
		t.Errorf("%v", err)
	}
}

// reseal gives a page the checksum of its bytes, so that fuzzing reaches what lies behind the check.
func reseal(b []byte) {
	if len(b) >= pageHeader {
		binary.LittleEndian.PutUint32(b[28:], pageSum(b))
	}
}

func FuzzParsePage(f *testing.F) {
	rows := goldenRows()
	for s := StageNone; s.valid(); s++ {
		stage, err := newStager(s, dtype.Float32)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(appendPage(nil, 0, []uint32{12, 7 | entryCompressed, 12}, rows, stage), 12)
		f.Add(appendPage(nil, 0, []uint32{20_000}, make([]byte, 20_000), stage), 20_000)
	}
	f.Fuzz(func(t *testing.T, b []byte, rowBytes int) {
		rowBytes = max(1, min(rowBytes, 1<<20-1))
		b = bytes.Clone(b)
		for range 2 { // as it is, and with a right checksum
			p, _, err := parsePage(b, 0, rowBytes, nil)
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			for i := range p.Rows() {
				row, compressed, err := p.Row(i)
				if err == nil && (!compressed && len(row) != rowBytes || compressed && len(row) >= rowBytes) {
					t.Fatalf("row %d has %d bytes of %d", i, len(row), rowBytes)
				}
			}
			reseal(b)
		}
	})
}

func FuzzManifest(f *testing.F) {
	m := Manifest{Name: "x", Codec: "none", DType: dtype.Float32, Rows: 1, RowBytes: 4, Generation: 1, PageBytes: 64 << 10, LongestPage: 40, Pages: 1, PageTotal: 40, GroupRows: 9}
	m.Parts[PartIndex].Bytes = 12
	b, err := m.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, b[:12])
	f.Fuzz(func(t *testing.T, b, index []byte) {
		var m Manifest
		if len(b) > 4 {
			b = append(b[:len(b)-4:len(b)-4], 0, 0, 0, 0)
			binary.LittleEndian.PutUint32(b[len(b)-4:], checksum(b[:len(b)-4]))
		}
		if m.UnmarshalBinary(b) != nil {
			return
		}
		if again, err := m.MarshalBinary(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%v: %x, %x", err, again, b)
		}
		x, err := newIndex(&m, index)
		if err != nil {
			return
		}
		for page := range min(m.Pages, 1000) {
			from, to := x.positions(page)
			if p, row := x.locate(to - 1); from >= to || p != page || row != int(to-1-from) {
				t.Fatalf("page %d has positions %d to %d, the last of which lies in page %d", page, from, to, p)
			}
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	r := &resumable{codec: "ibp4", metadata: []byte("metadata")}
	c := checkpoint{buffer: encodeCheckpoint(r)}
	c.add(&packedGroup{pageRows: 5}, []indexPage{{90, 0x1234}, {80, 0x5678}})
	f.Add(c.buffer)
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, n := parseCheckpoint(b, [32]byte{}); r != nil && n > int64(len(b)) {
			t.Fatalf("%d of %d bytes", n, len(b))
		}
	})
}
