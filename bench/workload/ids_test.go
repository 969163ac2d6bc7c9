package workload

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestReadIDs_Accepts(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []int64
	}{
		{"plain", "3\n0\n9\n", []int64{3, 0, 9}},
		{"no last newline", "3\n4", []int64{3, 4}},
		{"crlf", "3\r\n\r\n4\r\n", []int64{3, 4}},
		{"comments and blanks", "# a trace\n\n  \t\n7\n #8\n7\n", []int64{7, 7}},
		{"spaces", "\t 5 \n", []int64{5}},
		{"leading zeros", "0000000000000000000000000005\n", []int64{5}},
		{"byte order mark", "\xef\xbb\xbf1\r\n2\r\n", []int64{1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ids.txt")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := ReadIDs(path, 10)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestReadIDs_Errors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "workload: PATH: row numbers (0) must be at least 1"},
		{"only comments", "# nothing\n\n", "workload: PATH: row numbers (0) must be at least 1"},
		{"word", "1\nabc\n2\n", `workload: PATH:2: row number ("abc") must be decimal digits; bad lines in all: 1 of 3`},
		{"plus", "+1\n", `workload: PATH:1: row number ("+1") must be decimal digits; bad lines in all: 1 of 1`},
		{"minus", "-\n", `workload: PATH:1: row number ("-") must be decimal digits; bad lines in all: 1 of 1`},
		{"float", "1.0\n", `workload: PATH:1: row number ("1.0") must be decimal digits; bad lines in all: 1 of 1`},
		{"two columns", "1 2\n", `workload: PATH:1: row number ("1 2") must be decimal digits; bad lines in all: 1 of 1`},
		{"control bytes", "\x00\xff\n", `workload: PATH:1: row number ("\x00\xff") must be decimal digits; bad lines in all: 1 of 1`},
		{"negative", "# c\r\n\r\n4\r\n-5\r\n10\r\nx\r\n",
			"workload: PATH:4: row number (-5) must not be negative; bad lines in all: 3 of 4"},
		{"too large", "9\n10\n", "workload: PATH:2: row number (10) must be below 10, the rows of the table; bad lines in all: 1 of 2"},
		{"beyond 64 bits", "18446744073709551616\n",
			"workload: PATH:1: row number (18446744073709551616) must be below 10, the rows of the table; bad lines in all: 1 of 1"},
		{"long number", strings.Repeat("9", 50),
			"workload: PATH:1: row number (" + strings.Repeat("9", 40) + "…) must be below 10, the rows of the table; bad lines in all: 1 of 1"},
		{"long line", "1\n" + strings.Repeat("1", maxLine) + "\n", "workload: PATH:2: line must be shorter than 65536 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ids.txt")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(c.want, "PATH", path, 1)
			if got, err := ReadIDs(path, 10); err == nil || err.Error() != want || got != nil {
				t.Errorf("got  %v, %v\nwant %s", got, err, want)
			}
		})
	}
	absent := filepath.Join(t.TempDir(), "absent.txt")
	if _, err := ReadIDs(absent, 10); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), absent) {
		t.Errorf("missing file: %v", err)
	}
	dir := t.TempDir()
	if _, err := ReadIDs(dir, 10); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("folder: %v", err)
	}
}

func TestReplay_CutsIntoBatches(t *testing.T) {
	ids := []int64{5, 5, 1, 2, 9, 0, 3}
	for _, size := range []int{1, 2, 3, 6, 7, 8, 1 << 62} {
		w, err := NewReplay(ids, size)
		if err != nil {
			t.Fatal(err)
		}
		if w.Kind() != "ids" {
			t.Errorf("kind %q", w.Kind())
		}
		c := w.NewCursor()
		var got []int64
		for i := range w.Batches() {
			before := len(got)
			got = c.Batch(i, got)
			if n := len(got) - before; n != size && i < w.Batches()-1 || n < 1 || n > size {
				t.Errorf("size %d: batch %d has %d rows", size, i, n)
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("size %d: %v", size, got)
		}
		last := w.Batches() - 1
		if again := c.Batch(last, nil); !slices.Equal(again, got[len(got)-len(again):]) {
			t.Errorf("size %d: last batch %v when asked again", size, again)
		}
	}
}

func TestReplay_Errors(t *testing.T) {
	if _, err := NewReplay[int64](nil, 4); err == nil || err.Error() != "workload: replay: row numbers (0) must be at least 1" {
		t.Errorf("no ids: %v", err)
	}
	if _, err := NewReplay([]int64{1}, 0); err == nil || err.Error() != "workload: replay: batch size (0) must be at least 1" {
		t.Errorf("no batch size: %v", err)
	}
}

// FuzzReadIDs compares the reader with a plain one made of library calls.
func FuzzReadIDs(f *testing.F) {
	for _, s := range []string{"", "1\n2\n", "# c\r\n3\r\n", "-1", "+1", "99999999999999999999", "1_0", "\xef\xbb\xbf7", "00009", " 4\t\n\n5", "a\nb\n1"} {
		f.Add(s, uint32(8))
	}
	f.Fuzz(func(t *testing.T, text string, rows uint32) {
		var want []int64
		bad, long := 0, false
		for i, line := range strings.Split(text, "\n") {
			long = long || len(line) >= maxLine-1
			if i == 0 {
				line = strings.TrimPrefix(line, "\xef\xbb\xbf")
			}
			line = strings.Trim(line, " \t\r")
			if line == "" || line[0] == '#' {
				continue
			}
			v, err := strconv.ParseUint(line, 10, 64)
			if err != nil || v >= uint64(rows) {
				bad++
				continue
			}
			want = append(want, int64(v))
		}
		if long {
			t.Skip("a line at the length limit")
		}
		got, err := parseIDs(strings.NewReader(text), "ids", int(rows))
		switch {
		case bad > 0 || len(want) == 0:
			if err == nil || got != nil {
				t.Fatalf("got %v, %v for %d bad and %d good lines", got, err, bad, len(want))
			}
			counted := "bad lines in all: " + strconv.Itoa(bad) + " of " + strconv.Itoa(bad+len(want))
			if bad > 0 && !strings.HasSuffix(err.Error(), counted) {
				t.Fatalf("error %q does not end in %q", err, counted)
			}
		case err != nil || !slices.Equal(got, want):
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
	})
}

func BenchmarkReadIDs(b *testing.B) {
	var text strings.Builder
	for i := range 1_000_000 {
		text.WriteString(strconv.Itoa(i * 7919 % 500_000))
		text.WriteByte('\n')
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, err := parseIDs(strings.NewReader(text.String()), "ids", 500_000); err != nil {
			b.Fatal(err)
		}
	}
}
