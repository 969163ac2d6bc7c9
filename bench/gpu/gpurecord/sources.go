package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Sources are hashes of the code that only a GPU can test.
type Sources struct {
	// PTX is of the compiled kernels, unpacked.
	PTX string `json:"ptx"`
	// Go is of the Go and C files with the build tag cuda, without tests, comments and white space.
	Go string `json:"go"`
}

// untested are names of folders whose code GPU tests do not run.
var untested = []string{"bench", "build", "cmd", "stub", "testdata"}

func hashSources(root string) (s Sources, err error) {
	ptx, code := map[string][]byte{}, map[string][]byte{} // contents by path
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		name := e.Name()
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && (strings.HasPrefix(name, ".") || slices.Contains(untested, name)):
			return fs.SkipDir
		case e.IsDir(), strings.HasSuffix(name, "_test.go"), !strings.HasSuffix(name, ".ptx.zst") && !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".c"):
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch ext := filepath.Ext(name); {
		case ext == ".zst":
			if ptx[path], err = unzstd(b); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		case !tagged.Match(b):
		case ext == ".go":
			code[path] = goTokens(b)
		case ext == ".c":
			code[path] = spaces.ReplaceAll(cComment.ReplaceAll(b, []byte(" ")), []byte(" "))
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	if len(ptx) == 0 || len(code) == 0 {
		return s, fmt.Errorf("no sources under %s: run this in the repository's root", root)
	}
	return Sources{hash(root, ptx), hash(root, code)}, nil
}

var (
	tagged   = regexp.MustCompile(`(?m)^//go:build cuda\b`)
	cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	spaces   = regexp.MustCompile(`\s+`)
)

// hash is of the paths below root and the contents.
func hash(root string, files map[string][]byte) string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		rel, err := filepath.Rel(root, path)
		if err != nil {
			panic(err) // path was found below root
		}
		fmt.Fprintf(h, "%s %d\n", filepath.ToSlash(rel), len(files[path]))
		h.Write(files[path])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func unzstd(packed []byte) ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(packed, nil)
}

// goTokens returns the tokens of a Go file. Comments are not tokens.
func goTokens(src []byte) (out []byte) {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", files.Base(), len(src)), src, nil, 0)
	for {
		_, tok, text := s.Scan()
		if tok == token.EOF {
			return out
		}
		out = append(append(out, tok.String()+" "+text...), '\n')
	}
}
