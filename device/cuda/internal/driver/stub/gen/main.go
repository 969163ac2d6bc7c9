// Command gen writes the generated half of the stub library, stubs.S and symbols.h, from symbols.txt. It runs in the
// folder of package driver, by go generate.
package main

import (
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	list, err := os.ReadFile(filepath.Join("stub", "symbols.txt"))
	if err != nil {
		log.Fatal(err)
	}
	symbols, err := parseSymbols(string(list))
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range generate(symbols) {
		if err := os.WriteFile(filepath.Join("stub", name), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
