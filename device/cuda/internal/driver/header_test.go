package driver

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// The header declares the entries of symbols.h, which is sorted, no more and no fewer.
func TestHeader_Symbols(t *testing.T) {
	header := readFile(t, "include/cuda.h")
	exported := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define (cu\w+) (cu\w+)$`).FindAllStringSubmatch(header, -1) {
		exported[m[1]] = m[2]
	}
	var declared []string
	for _, m := range regexp.MustCompile(`(?m)^CUresult (cu\w+)\(`).FindAllStringSubmatch(header, -1) {
		name := m[1]
		if e, ok := exported[name]; ok {
			name = e
			delete(exported, m[1])
		}
		declared = append(declared, name)
	}
	if len(exported) != 0 {
		t.Errorf("renamed but not declared: %v", exported)
	}
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^(?:SYMBOL|RENAMED)\((cu\w+)`).FindAllStringSubmatch(readFile(t, "stub/symbols.h"), -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(declared)
	if !slices.Equal(declared, listed) {
		t.Errorf("declared, not listed: %v\nlisted, not declared: %v", without(declared, listed), without(listed, declared))
	}
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
