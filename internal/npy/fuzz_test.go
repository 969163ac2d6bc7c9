package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// fuzzOpen reads a file through the API. What is accepted must survive Write and a
// second reading. It reports the bytes read.
func fuzzOpen(t *testing.T, b []byte, c choice) int {
	r, err := openBytes(b, c)
	if err != nil {
		return 0
	}
	defer r.Close()
	if r.Rows() < 1 || r.RowBytes() < 1 || r.Rows() > maxInflate*len(b)/r.RowBytes() {
		t.Fatalf("%d rows of %d bytes from a file of %d", r.Rows(), r.RowBytes(), len(b))
	}
	data, err := readRows(r, max(1, 4096/r.RowBytes()))
	if err != nil {
		if _, again := r.Read(make([]byte, r.RowBytes())); again != err {
			t.Fatalf("error is not sticky: %v, then %v", err, again)
		}
		return len(data)
	}
	if len(data) != r.Rows()*r.RowBytes() {
		t.Fatalf("%d bytes, want %d rows of %d", len(data), r.Rows(), r.RowBytes())
	}
	copied := written(t, r.DType(), r.Shape(), data)
	r2, err := openBytes(copied, choice{})
	if err != nil {
		t.Fatalf("second Open: %v", err)
	}
	again, err := readRows(r2, max(1, 1000/r.RowBytes()))
	if err != nil || !bytes.Equal(data, again) || r.DType() != r2.DType() || !slices.Equal(r.Shape(), r2.Shape()) {
		t.Fatalf("%v %v became %v %v (%v)", r.DType(), r.Shape(), r2.DType(), r2.Shape(), err)
	}
	if len(r.Shape()) == 1 && r.DType().IsInt() {
		r3, err := openBytes(b, c)
		if err != nil {
			t.Fatal(err)
		}
		ints, err := r3.ReadInts()
		if err == nil && len(ints) != r.Rows() {
			t.Fatalf("%d ints, want %d", len(ints), r.Rows())
		}
	}
	return len(data)
}

// checkAllocated runs f, which returns the bytes that it read, and fails if it allocated
// out of proportion: 100 times that plus 16 MiB, which covers what the test itself copies.
func checkAllocated(t *testing.T, fileBytes int, f func() int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read := f()
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(16<<20+100*(fileBytes+read)); got > limit {
		t.Fatalf("allocated %d bytes for a file of %d with %d bytes of data", got, fileBytes, read)
	}
}

func FuzzNPY(f *testing.F) {
	for _, d := range everyDType {
		f.Add(written(f, d, []int{2, 3}, sequence(6*d.Size())))
	}
	f.Add(written(f, dtype.Int32, []int{5}, sequence(20)))
	f.Add(written(f, dtype.Float64, []int{2, 3, 2}, sequence(96)))
	f.Add(file(2, dict("'>f4'", "True", "(2, 3)"), sequence(24)))
	f.Add(file(3, dict("'>u2'", "True", "(2, 3, 2)"), sequence(24)))
	f.Add(file(1, dict("[('a', '<f4')]", "False", "(2,)"), sequence(8)))
	f.Add(file(1, dict("'<f4'", "False", "(99999999999, 3)"), sequence(8)))
	f.Add(file(1, "{'shape':(6,),'descr':'?','fortran_order':False}", sequence(6)))
	f.Fuzz(func(t *testing.T, b []byte) {
		checkAllocated(t, len(b), func() int { return fuzzOpen(t, b, choice{}) })
	})
}

func FuzzNPZ(f *testing.F) {
	m, v := matrix(f), vector(f)
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		f.Add(archiveOf(f, member{"features.npy", method, m}))
		f.Add(archiveOf(f, member{"a.npy", method, v}, member{"b.npy", method, m}, member{"c", method, nil}))
		f.Add(archiveOf(f, member{"a.npy", method, file(1, dict("'>i2'", "True", "(3, 4)"), sequence(24))}))
	}
	f.Add(v)
	f.Add(file(2, dict("'>i4'", "True", "(3, 4)"), sequence(48)))
	// A member that inflates by nearly deflate's limit.
	f.Add(archiveOf(f, member{"a.npy", zip.Deflate, written(f, dtype.Uint8, []int{1000, 300}, make([]byte, 300000))}))
	lie := archiveOf(f, member{"a.npy", zip.Deflate, file(1, dict("'|u1'", "True", "(100, 10)"), make([]byte, 600))})
	size := central(lie)[centralSize:]
	binary.LittleEndian.PutUint32(size, binary.LittleEndian.Uint32(size)+400)
	f.Add(lie)
	f.Fuzz(func(t *testing.T, b []byte) {
		// A changed archive nearly always fails a checksum; unchanged bytes as a member
		// reach further.
		var whole bytes.Buffer
		w := zip.NewWriter(&whole)
		entry, err := w.Create("a.npy")
		if err == nil {
			_, err = io.Copy(entry, bytes.NewReader(b))
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		checkAllocated(t, len(b), func() int {
			return fuzzOpen(t, whole.Bytes(), choice{}) +
				fuzzOpen(t, b, choice{minRank: 2, prefer: []string{"features"}}) +
				fuzzOpen(t, b, choice{array: "a"})
		})
	})
}
