package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func read(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../tensorcache.h")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHeader_FilesAreUpToDate compares the committed files with what the header gives.
func TestHeader_FilesAreUpToDate(t *testing.T) {
	files, err := generate(read(t))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		if got, err := os.ReadFile(filepath.Join("..", path)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s (%v) is not what tensorcache.h gives: go generate ./capi", filepath.Base(path), err)
		}
	}
}

// TestHeader_Follows adds a field and a function to the header, as a new option and a new call would.
func TestHeader_Follows(t *testing.T) {
	text := read(t)
	for _, change := range [][2]string{
		{"	int32_t shared; ", "	const char *colour; /* of it */\n	int32_t shared; "},
		{"/* ---- knowing ---- */\n", "/* Paints. shade may be NULL. */\nTC_API tc_status tc_paint(tc_cache *cache, const char *colour, const tc_training *shade,\n\tint32_t *coats, tc_batch **batch);\n"},
	} {
		if strings.Count(text, change[0]) != 1 {
			t.Fatalf("%d times %q in tensorcache.h", strings.Count(text, change[0]), change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	files, err := generate(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{"../python/tensorcache/_abi.py", "        (\"colour\", c_char_p),\n        (\"shared\", c_int32),\n"},
		{"../python/tensorcache/_abi.py", "    \"paint\": (c_int, c_void_p, c_char_p, POINTER(Training), POINTER(c_int32), POINTER(c_void_p)),\n"},
		{"calls.c", `
tc_status tc_paint(tc_cache *cache, const char *colour, const tc_training *shade, int32_t *coats, tc_batch **batch)
{
	ENTER();
	if (batch != NULL)
		*batch = NULL;
	NEED(colour);
	NEED(coats);
	return tcgo_paint((uintptr_t)cache, (char *)colour, (tc_training *)shade, coats, (uintptr_t *)batch);
}
`},
		{"calls.go", `
//export tcgo_paint
func tcgo_paint(h C.uintptr_t, colour *C.char, shade *C.tc_training, coats *C.int32_t, batch *C.uintptr_t) status {
	return caches.with(h, func(of *served) error {
		return of.paint(colour, shade, coats, batch)
	})
}
`},
	} {
		if !strings.Contains(string(files[c.path]), c.want) {
			t.Errorf("%s lacks %s", c.path, c.want)
		}
	}
}

func TestHeader_Refuses(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"TC_FLOAT64 = 4", "TC_FLOAT64 = 40", "TC_FLOAT64 (40) must be the number of package dtype"},
		{"TC_BUDDY_PEER = 1", "TC_BUDDY_PEER = 1 << 0", `"TC_BUDDY_PEER = 1 << 0" of tc_buddy must be TC_NAME = NUMBER`},
		{"	int32_t shared; ", "	int32_t shared : 1; ", `tc_config: "int32_t shared : 1" is not understood`},
		{"TC_API tc_status tc_refresh(tc_cache *cache);", "TC_API tc_status tc_refresh(void (*done)(void));", "tc_refresh: "},
	} {
		text := read(t)
		changed := strings.Replace(text, c.from, c.to, 1)
		if _, err := generate(changed); changed == text || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.to, err, c.want)
		}
	}
}
