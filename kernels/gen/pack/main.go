// Command pack compresses PTX for the repository and the binary: pack FROM TO writes TO/x.ptx.zst for each FROM/x.ptx, and
// removes what else is there. Equal PTX gives equal files: one goroutine compresses, with a version that go.mod pins.
package main

import (
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("pack: ")
	if len(os.Args) != 3 {
		log.Fatal("usage: pack FROM TO")
	}
	if err := pack(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func pack(from, to string) error {
	sources, err := filepath.Glob(filepath.Join(from, "*.ptx"))
	if err != nil {
		return err
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	packed := map[string]bool{}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		name := filepath.Base(source) + ".zst"
		packed[name] = true
		if err := os.WriteFile(filepath.Join(to, name), enc.EncodeAll(text, nil), 0o644); err != nil {
			return err
		}
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
