// Command pack compresses PTX for the repository and the binary, and lists compressed PTX:
//
//	pack FROM TO   writes TO/x.ptx.zst for each FROM/x.ptx, and removes other PTX from TO
//	pack FOLDER    prints the 64-bit FNV-1a hash of the PTX of each FOLDER/x.ptx.zst, by which the emulated GPU knows modules, and x
//
// Equal PTX gives equal files: one goroutine compresses, with a version that go.mod pins.
package main

import (
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
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
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	packed := map[string]bool{}
	err = each(from, ".ptx", func(name string, text []byte) error {
		packed[name+".ptx.zst"] = true
		return os.WriteFile(filepath.Join(to, name+".ptx.zst"), enc.EncodeAll(text, nil), 0o644)
	})
	if err != nil {
		return err
	}
	there, err := os.ReadDir(to)
	if err != nil {
		return err
	}
	for _, file := range there {
		if !packed[file.Name()] && strings.Contains(file.Name(), ".ptx") {
			if err := os.Remove(filepath.Join(to, file.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func list(folder string) error {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer d.Close()
	return each(folder, ".ptx.zst", func(name string, packed []byte) error {
		text, err := d.DecodeAll(packed, nil)
		if err != nil {
			return err
		}
		h := fnv.New64a()
		h.Write(text)
		fmt.Printf("%016x %s\n", h.Sum64(), name)
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
