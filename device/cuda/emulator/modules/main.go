// Command modules prints, for the emulator's library, the 64-bit FNV-1a hash of the PTX of each module in a folder of packed ones, and
// its name: modules FOLDER.
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
	log.SetPrefix("modules: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: modules FOLDER")
	}
	if err := list(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func list(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.ptx.zst"))
	if err != nil {
		return err
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer d.Close()
	for _, file := range files {
		packed, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text, err := d.DecodeAll(packed, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		h := fnv.New64a()
		h.Write(text)
		fmt.Printf("%016x %s\n", h.Sum64(), strings.TrimSuffix(filepath.Base(file), ".ptx.zst"))
	}
	return nil
}
