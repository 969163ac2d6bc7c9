package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Sources are hashes of the code that only a GPU can test.
type Sources struct {
	// PTX covers the compiled kernels, unpacked; Go the Go and C sources of the tag cuda, tests apart, without comments.
	PTX string `json:"ptx"`
	Go  string `json:"go"`
}

// untested are folders whose code the GPU tests do not run.
var untested = []string{"bench", "build", "cmd", "stub", "testdata"}

func hashSources(root string) (s Sources, err error) {
	var ptx, code []string
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() && path != root && (strings.HasPrefix(name, ".") || slices.Contains(untested, name)) {
			return fs.SkipDir
		}
		switch {
		case strings.HasSuffix(name, ".ptx.zst"):
			ptx = append(ptx, path)
		case strings.HasSuffix(name, "_test.go"):
		case strings.HasSuffix(name, ".go"):
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if tagged.Match(b) {
				code = append(code, path)
			}
		case strings.HasSuffix(name, ".c"):
			code = append(code, path)
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	if s.PTX, err = hashFiles(root, ptx); err != nil {
		return s, err
	}
	s.Go, err = hashFiles(root, code)
	return s, err
}

var (
	tagged   = regexp.MustCompile(`(?m)^//go:build cuda\b`)
	cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	spaces   = regexp.MustCompile(`\s+`)
)

// hashFiles hashes names and contents, comments and white space of source files apart.
func hashFiles(root string, paths []string) (string, error) {
	if len(paths) == 0 {
		return "", fmt.Errorf("no sources under %s: run this in the repository's root", root)
	}
	slices.Sort(paths)
	h := sha256.New()
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		switch filepath.Ext(path) {
		case ".go":
			b = goTokens(b)
		case ".zst":
			if b, err = unpack(b); err != nil {
				return "", fmt.Errorf("%s: %w", path, err)
			}
		case ".c":
			b = spaces.ReplaceAll(cComment.ReplaceAll(b, []byte(" ")), []byte(" "))
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", filepath.ToSlash(rel), len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func unpack(packed []byte) ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(packed, nil)
}

// goTokens returns a Go file's tokens, which comments are none of.
func goTokens(src []byte) []byte {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", files.Base(), len(src)), src, nil, 0)
	var out []byte
	for {
		_, tok, text := s.Scan()
		if tok == token.EOF {
			return out
		}
		out = append(append(out, tok.String()+" "+text...), '\n')
	}
}
