package record

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

// untested are names of folders whose code is not hashed: what only measures, commands, and what is built.
var untested = []string{"bench", "build", "cmd", "lab", "stub", "testdata"}

// HashSources hashes the code below root.
func HashSources(root string) (s Sources, err error) {
	ptx, code, err := readSources(root)
	if err != nil {
		return s, err
	}
	return Sources{hash(ptx), hash(code)}, nil
}

// readSources returns the contents of what is hashed, by paths below root.
func readSources(root string) (ptx, code map[string][]byte, err error) {
	ptx, code = map[string][]byte{}, map[string][]byte{}
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
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch ext := filepath.Ext(name); {
		case ext == ".zst":
			if ptx[rel], err = unzstd(b); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		case !tagged.Match(b):
		case ext == ".go":
			code[rel] = goTokens(b)
		case ext == ".c":
			code[rel] = spaces.ReplaceAll(cComment.ReplaceAll(b, []byte(" ")), []byte(" "))
		}
		return nil
	})
	if err == nil && (len(ptx) == 0 || len(code) == 0) {
		err = fmt.Errorf("no sources under %s: run this in the repository's root", root)
	}
	return ptx, code, err
}

var (
	tagged   = regexp.MustCompile(`(?m)^//go:build cuda\b`)
	cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	spaces   = regexp.MustCompile(`\s+`)
)

// hash is of paths and contents.
func hash(files map[string][]byte) string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s %d\n", path, len(files[path]))
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
