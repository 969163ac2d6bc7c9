// Command pack compresses PTX for the repository and the binary, and lists compressed PTX:
//
//	pack FROM TO   writes the bundles TO/CODEC.ptx.zst of the modules FROM/x.ptx (package bundle), without comments and indentation, and removes other PTX from TO
//	pack FOLDER    prints the 64-bit FNV-1a hash of the PTX of each module in the bundles of FOLDER, by which the emulated GPU knows modules, and its name
//
// A bundle that has the same modules already stays as it is, so only changed PTX needs the zstd program, whose versions compress differently.
package main

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/internal/bundle"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("pack: ")
	var err error
	switch len(os.Args) {
	case 2:
		err = list(os.Args[1])
	case 3:
		err = pack(os.Args[1], os.Args[2])
	default:
		log.Fatal("usage: pack FROM TO, or pack FOLDER")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func pack(from, to string) error {
	bundles := map[string]map[string][]byte{}
	err := each(from, ".ptx", func(name string, text []byte) error {
		of := bundle.Of(name)
		if bundles[of] == nil {
			bundles[of] = map[string][]byte{}
		}
		bundles[of][name] = strip(text)
		return nil
	})
	if err != nil {
		return err
	}
	for name, modules := range bundles {
		if err := renew(filepath.Join(to, name+bundle.Ext), modules); err != nil {
			return err
		}
	}
	return each(to, bundle.Ext, func(name string, _ []byte) error {
		if bundles[name] != nil {
			return nil
		}
		return os.Remove(filepath.Join(to, name+bundle.Ext))
	})
}

var (
	comments = regexp.MustCompile(`[ \t]*//.*`)
	indents  = regexp.MustCompile(`(?m)^\s+`)
	spaces   = regexp.MustCompile(`[ \t]+`)
)

// strip returns PTX without what its compiler does not read: comments, indentation and empty lines. It names no files, so that no // is in a string.
func strip(text []byte) []byte {
	text = comments.ReplaceAll(text, nil)
	text = indents.ReplaceAll(text, nil)
	return spaces.ReplaceAll(text, []byte(" "))
}

// renew writes a bundle, unless it has the modules already.
func renew(path string, modules map[string][]byte) error {
	if old, err := os.ReadFile(path); err == nil {
		same := func(there bundle.Packed, module []byte) bool { return bytes.Equal(there.Text(), module) }
		if there, err := bundle.Unpack(old); err == nil && maps.EqualFunc(there, modules, same) {
			return nil
		}
	}
	text, err := bundle.Join(modules)
	if err != nil {
		return err
	}
	// It makes two thirds of what the compressor in Go makes. With the size in the frame's header nothing is decompressed to memory that has to grow.
	zstd := exec.Command("zstd", "-19", "--long=26", "--no-check", fmt.Sprint("--stream-size=", len(text)), "-c")
	zstd.Stdin, zstd.Stderr = bytes.NewReader(text), os.Stderr
	packed, err := zstd.Output()
	if err != nil {
		return fmt.Errorf("%s: zstd: %w", path, err)
	}
	return os.WriteFile(path, packed, 0o644)
}

func list(folder string) error {
	return each(folder, bundle.Ext, func(_ string, packed []byte) error {
		modules, err := bundle.Unpack(packed)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(modules)) {
			h := fnv.New64a()
			h.Write(modules[name].Text())
			fmt.Printf("%016x %s\n", h.Sum64(), name)
		}
		return nil
	})
}

// each calls do for the files of a folder whose names end in suffix, in order, with the rest of the name and the content.
func each(folder, suffix string, do func(name string, content []byte) error) error {
	files, err := filepath.Glob(filepath.Join(folder, "*"+suffix))
	for _, file := range files {
		var content []byte
		if content, err = os.ReadFile(file); err == nil {
			err = do(strings.TrimSuffix(filepath.Base(file), suffix), content)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return err
}
