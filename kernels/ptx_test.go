package kernels_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPTX_IsOfTheseSources: a program runs the PTX that it was built with, and the emulated GPU the sources. PTX older than the sources, and than the Go code that
// says how much memory kernels have, is right on the emulated GPU and wrong on a GPU. build.sh makes the sum.
func TestPTX_IsOfTheseSources(t *testing.T) {
	want, err := os.ReadFile("ptx/ptx.sha256")
	if os.IsNotExist(err) {
		if _, err := os.Stat("build.sh"); os.IsNotExist(err) {
			t.Skip("the sources are not here")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"build.sh"}
	for _, pattern := range []string{"*.cu", "*.h"} { // Glob's order is that of LC_ALL=C
		all, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, all...)
	}
	packed, err := filepath.Glob("ptx/*.zst")
	if err != nil || len(packed) == 0 {
		t.Fatal(packed, err)
	}
	files = append(slices.DeleteFunc(files, func(f string) bool { return f == "emulated.h" }), "../codec/codecs.list")
	files = append(files, packed...)
	h := sha256.New()
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(data)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != strings.TrimSpace(string(want)) {
		t.Errorf("ptx/ptx.sha256 is %s, and that of the sources and the PTX is %s: run make kernels", strings.TrimSpace(string(want)), got)
	}
}
