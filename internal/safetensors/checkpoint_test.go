package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// folder writes a checkpoint: the files, and an index unless there is one among them.
func folder(t *testing.T, index string, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	if index != "" {
		files[indexFile] = []byte(index)
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tables are n tensors of values and scales, of 3, 4, 5 … rows of 4 and 2 bytes, in files of their own; and the rows joined.
func tables(n int) (files map[string][]byte, index string, rows []byte) {
	files = map[string][]byte{}
	var in []string
	all := sequence(1000 * n)
	for i := range n {
		count := 3 + i
		values, scales := all[:4*count], all[4*count:6*count]
		all = all[6*count:]
		name := fmt.Sprintf("m-%d.safetensors", i)
		files[name] = file(header(entry(fmt.Sprintf("t.%d.s", i), "F8_E8M0", fmt.Sprintf("[%d,2]", count), 0, 2*count), entry(fmt.Sprintf("t.%d.w", i), "F8_E4M3", fmt.Sprintf("[%d,4]", count), 2*count, 6*count)),
			slices.Concat(scales, values))
		in = append(in, fmt.Sprintf(`"t.%d.w":%q,"t.%d.s":%q`, i, name, i, name))
		for r := range count {
			rows = slices.Concat(rows, values[4*r:][:4], scales[2*r:][:2])
		}
	}
	return files, fmt.Sprintf(`{"metadata":{"total_size":[1,{"a":null}]},"weight_map":{%s}}`, strings.Join(in, ",")), rows
}

// TestOpenCheckpoint_RowsOfShards: values and scales of tensors in several files are rows one behind the other, in the order of their numbers, from whatever row on they are
// read.
func TestOpenCheckpoint_RowsOfShards(t *testing.T) {
	files, index, want := tables(12)
	dir := folder(t, index, files)
	for _, path := range []string{dir + ":t.*.w+t.*.s", filepath.Join(dir, indexFile) + ":t.*.w+t.*.s", dir + ":t.0.w,t.1.w,t.2.w,t.3*w,t.4.w,t.5.w,t.6.w,t.7.w,t.8.w,t.9.w,t.1*.w+t.*.s"} {
		c, err := OpenCheckpoint(path, 2)
		if strings.HasSuffix(path, "t.1*.w+t.*.s") {
			checkText(t, err, `"t.*.s" (12 tensors) must be as many as the 13 before the plus`)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if c.DType().String() != "float8_e4m3fn*4,float8_e8m0fnu*2" || c.RowBytes() != 6 || c.Rows() != len(want)/6 || c.Maps() {
			t.Fatalf("%v, %d rows of %d bytes", c.DType(), c.Rows(), c.RowBytes())
		}
		for from := range c.Rows() + 1 {
			for to := from; to <= c.Rows(); to++ {
				got := make([]byte, 6*(to-from))
				if err := c.ReadFrom(int64(from), got); err != nil || !bytes.Equal(got, want[6*from:6*to]) {
					t.Fatalf("rows %d to %d: %x, %v", from, to, got, err)
				}
			}
		}
		var got []byte
		for buf := make([]byte, 6*7); ; {
			n, err := c.Read(buf)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, buf[:6*n]...)
		}
		if !bytes.Equal(got, want) {
			t.Error("rows read in turn differ")
		}
		for _, bad := range []struct{ row, bytes int }{{-1, 6}, {0, 5}, {c.Rows(), 6}, {0, 6 * (c.Rows() + 1)}} {
			if err := c.ReadFrom(int64(bad.row), make([]byte, bad.bytes)); err == nil {
				t.Errorf("%d bytes from row %d on were read", bad.bytes, bad.row)
			}
		}
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		checkText(t, c.ReadFrom(0, make([]byte, 6)), "closed")
	}
}

// TestOpenCheckpoint_OneFile: patterns and lists are of a single file, too; what names one tensor of a file is left to Open.
func TestOpenCheckpoint_OneFile(t *testing.T) {
	b := file(header(entry("a*", "U8", "[2,3]", 0, 6), entry("a1", "U8", "[4,3]", 6, 18), entry("b,c", "U8", "[1,3]", 18, 21), entry("d+e", "U8", "[1,3]", 21, 24)), sequence(24))
	dir := folder(t, "", map[string][]byte{singleFile: b})
	path := filepath.Join(dir, singleFile)
	for names, rows := range map[string]int{":a*,a1": 6, ":a?": 0, ":a*": -1, ":b,c": -1, ":a1": -1, ":a1,b,c": 0, ":*1,*c": 5, ":*": 8, ":d+e": -1} {
		c, err := OpenCheckpoint(path+names, 2)
		switch {
		case rows < 0 && (c != nil || err != nil), rows == 0 && names != ":a?" && err == nil, rows > 0 && (err != nil || c.Rows() != rows):
			t.Errorf("%s: %v, want %d rows", names, err, rows)
		}
		if c != nil {
			c.Close()
		}
	}
	for _, names := range []string{":a1", ":d+e", ":a*"} { // a folder is a checkpoint in any case
		c, err := OpenCheckpoint(dir+names, 2)
		if err != nil || c.Rows() > 4 {
			t.Fatalf("%s: %v", names, err)
		}
		c.Close()
	}
	if c, err := OpenCheckpoint(path, 2); c != nil || err != nil {
		t.Errorf("a file without names: %v, %v", c, err)
	}
}

func TestOpenCheckpoint_BadInput(t *testing.T) {
	one := func(entries ...string) []byte {
		n := 0
		for _, e := range entries {
			fmt.Sscanf(e[strings.LastIndex(e, ",")+1:], "%d", &n)
		}
		return file(header(entries...), sequence(n))
	}
	index := `{"weight_map":{"w1":"a.safetensors","w2":"b.safetensors","s1":"a.safetensors","gone":"c.safetensors","lost":"a.safetensors","flat":"a.safetensors","x1":"b.safetensors","f4":"b.safetensors"}}`
	dir := folder(t, index, map[string][]byte{
		"a.safetensors": one(entry("w1", "F8_E4M3", "[3,4]", 0, 12), entry("s1", "F8_E8M0", "[2,1]", 12, 14), entry("flat", "U8", "[6]", 14, 20)),
		"b.safetensors": one(entry("w2", "F8_E5M2", "[3,4]", 0, 12), entry("x1", "F8_E4M3", "[3,5]", 12, 27), entry("f4", "F4", "[1]", 27, 28)),
	})
	for names, want := range map[string]string{
		":":         "tensors must be named behind a colon",
		":w9":       `tensor ("w9") must be or match some of "f4", "flat", "gone", "lost", "s1", "w1", "w2", "x1"`,
		":y*":       `tensor ("y*") must be or match some of`,
		":w*":       `tensor "w2" (float8_e5m2, rows of 4 bytes) must be like "w1" (float8_e4m3fn, rows of 4 bytes)`,
		":w1,x1":    `tensor "x1" (float8_e4m3fn, rows of 5 bytes) must be like "w1" (float8_e4m3fn, rows of 4 bytes)`,
		":w1+s1":    `rows (2) of tensor "s1" must be the 3 of "w1"`,
		":w1+s1,s1": `"s1,s1" (2 tensors) must be as many as the 1 before the plus`,
		":gone":     `file "c.safetensors", where the index has tensor "gone": open: no such file or directory`,
		":lost":     `file "a.safetensors" must have tensor "lost", as the index says`,
		":flat":     "rank (1) of shape [6] must be at least 2",
		":f4":       `dtype ("F4") must be one of`,
		":w1+gone":  `file "c.safetensors"`,
	} {
		path := strings.TrimSuffix(dir+names, ":")
		c, err := OpenCheckpoint(path, 2)
		if c != nil {
			t.Errorf("%s was opened", names)
		}
		checkText(t, err, want)
		if names == ":gone" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v is not fs.ErrNotExist", err)
		}
	}
	for index, want := range map[string]string{
		"{}": "index must have a weight_map", `[]`: `index ("[") must be an object`, `{"weight_map":{"a":"../b"}}`: `file ("../b") of tensor "a" must be the name of a file beside the index`,
		`{"weight_map":{"a":1}}`: `weight_map of a ("1" at byte`, `{"weight_map":{"a":"b","a":"c"}}`: `key ("a") of weight_map must occur once`, `{"weight_map"`: "unexpected", `{"weight_map":{"a":".."}}`: `file ("..")`,
	} {
		_, err := OpenCheckpoint(folder(t, index, map[string][]byte{})+":a", 2)
		checkText(t, err, want)
	}
	truncated := folder(t, `{"weight_map":{"a":"a.safetensors"}}`, map[string][]byte{"a.safetensors": one(entry("a", "U8", "[3,4]", 0, 12))[:60]})
	_, err := OpenCheckpoint(truncated+":a", 2)
	checkText(t, err, "truncated")
}
