package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGenerate_Committed(t *testing.T) {
	list, err := os.ReadFile("../symbols.txt")
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := parseSymbols(string(list))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range generate(symbols) {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what symbols.txt gives: run go generate ./device/cuda/internal/driver", name)
		}
	}
}

func TestParseSymbols_Errors(t *testing.T) {
	for list, want := range map[string]string{
		"cuB\ncuA\n":       "symbols.txt:2: cuA is not after cuB",
		"cuA\n# x\ncuA\n":  "symbols.txt:3: cuA is not after cuA",
		"cuA cuB cuC\n":    "symbols.txt:1: 3 names, at most 2",
		"malloc\n":         `symbols.txt:1: "malloc" is no driver entry`,
		"cuA_v2 cuA x#y\n": "symbols.txt:1: 3 names, at most 2",
	} {
		if _, err := parseSymbols(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", list, err, want)
		}
	}
}
