package trace

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// fuzz reads hostile bytes as a format: at most so many requests, then an *Error or the end.
func fuzz(f *testing.F, format, example string) {
	b, err := os.ReadFile(filepath.Join("testdata", example))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := newSource("x", bytes.NewReader(b))
		if err != nil {
			return
		}
		defer s.close()
		r, err := newReader(s, Options{Format: format})
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]Request, 100)
		var e *Error
		for i := range int64(1000) {
			n, err := r.Read(buf)
			if err != nil {
				if n != 0 {
					t.Fatalf("%d requests with %v", n, err)
				}
				if errors.As(err, &e) && (e.Offset < 0 || e.Offset > s.offset || e.File != "x") {
					t.Fatalf("error %v after %d bytes", err, s.offset)
				}
				return
			}
			for j, q := range buf[:n] {
				if err := check(&q, i*100+int64(j)); q.Next >= 0 && format != "tct" && format != "lcs" && format != "oraclegeneral" || err != nil && q.Next < 0 {
					t.Fatalf("request %d: %+v: %v", i*100+int64(j), q, err)
				}
			}
		}
	})
}

func FuzzIDs(f *testing.F)           { fuzz(f, "ids", "small.ids") }
func FuzzARC(f *testing.F)           { fuzz(f, "arc", "small.arc") }
func FuzzMooncake(f *testing.F)      { fuzz(f, "mooncake", "small.jsonl") }
func FuzzCacheLib(f *testing.F)      { fuzz(f, "cachelib", "small.csv") }
func FuzzOracleGeneral(f *testing.F) { fuzz(f, "oraclegeneral", "small.oracleGeneral") }
func FuzzLCS(f *testing.F) {
	for version := 1; version <= 8; version++ {
		f.Add(lcs(version, []Request{{ID: 1, Size: 2, Next: 1}, {ID: 1, Size: 2, Next: Never}}))
	}
	fuzz(f, "lcs", "small.oracleGeneral")
}
func FuzzTCT(f *testing.F) { fuzz(f, "tct", "small.tct") }

// FuzzTCTPayload reads a block's columns behind a checksum that is right; what is taken is written and read again alike.
func FuzzTCTPayload(f *testing.F) {
	f.Add([]byte{deltas, 2, 4, allZero, values, 1, 1, runs, 2, 2, allZero}, uint8(2))
	f.Add([]byte{runs, 1, 200, 1}, uint8(200))
	f.Fuzz(func(t *testing.T, payload []byte, count uint8) {
		n := int(count) + 1
		d := &blockDecoder{}
		if err := d.parse(payload, n); err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		var b bytes.Buffer
		w, err := NewBlockWriter(&b, Header{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Write(d.block), w.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := readBytes("x", b.Bytes(), "tct"); err != nil || !slices.Equal(got, d.block) {
			t.Fatalf("%+v came back as %+v, %v", d.block, got, err)
		}
	})
}
