package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/tensorcache/tensorcache/internal/bundle"
)

// TestCompile: each module is compiled for each compute capability, and only if the PTX has changed since. An error of the compiler names the module.
func TestCompile(t *testing.T) {
	if _, err := exec.LookPath("zstd"); err != nil {
		t.Skip("zstd is not installed")
	}
	from, to := t.TempDir(), t.TempDir()
	ptxas := filepath.Join(t.TempDir(), "ptxas") // -O3 -arch=… -o CODE SOURCE
	script := "#!/bin/sh\ngrep -q bad \"$5\" && { echo \"$5 is bad\" >&2; exit 1; }\n{ echo \"$2\"; cat \"$5\"; } >\"$4\"\n"
	if err := os.WriteFile(ptxas, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(modules map[string][]byte) []byte {
		text, err := bundle.Join(modules)
		if err != nil {
			t.Fatal(err)
		}
		packed := enc.EncodeAll(text, nil)
		if err := os.WriteFile(filepath.Join(from, "raw"+bundle.Ext), packed, 0o644); err != nil {
			t.Fatal(err)
		}
		return packed
	}
	check := func(packed []byte, want string) os.FileInfo {
		t.Helper()
		path := filepath.Join(to, "sm_90", "raw"+bundle.MachineExt)
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		modules, err := bundle.UnpackMachine(file, packed)
		if err != nil || string(modules["decode_raw"]) != "-arch=sm_90\n"+want || len(modules) != 2 {
			t.Errorf("got %q, %v", modules, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	packed := write(map[string][]byte{"decode_raw": []byte(".entry a\n"), "fetch_raw": []byte(".entry b\n")})
	if err := compile(ptxas, from, to, []string{"80", "90"}); err != nil {
		t.Fatal(err)
	}
	first := check(packed, ".entry a\n")
	if err := compile(ptxas, from, to, []string{"80", "90"}); err != nil {
		t.Fatal(err)
	}
	if again := check(packed, ".entry a\n"); !os.SameFile(first, again) || !again.ModTime().Equal(first.ModTime()) {
		t.Error("what is of the same PTX was compiled again")
	}
	packed = write(map[string][]byte{"decode_raw": []byte(".entry c\n"), "fetch_raw": []byte(".entry b\n")})
	if err := compile(ptxas, from, to, []string{"90"}); err != nil {
		t.Fatal(err)
	}
	check(packed, ".entry c\n")
	write(map[string][]byte{"decode_raw": []byte("bad\n")})
	if err := compile(ptxas, from, to, []string{"90"}); err == nil || !strings.Contains(err.Error(), "decode_raw") || !strings.Contains(err.Error(), "is bad") {
		t.Errorf("a module that does not compile: %v", err)
	}
	if err := compile(ptxas, to, to, []string{"90"}); err == nil || !strings.Contains(err.Error(), to) {
		t.Errorf("a folder without PTX: %v", err)
	}
}
