// Command gen reads capi/tensorcache.h, which describes the C library, and writes what follows from it: python/tensorcache/_abi.py, the constants, structures and
// functions as ctypes has them, and capi/calls.c, the functions of the library that only call Go. It runs in the folder of package capi, by go generate.
package main

import (
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	text, err := os.ReadFile("tensorcache.h")
	if err != nil {
		log.Fatal(err)
	}
	h, err := parse(string(text))
	if err != nil {
		log.Fatal(err)
	}
	for path, source := range h.files() {
		if err := os.WriteFile(path, source, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// files returns what is generated, by path from the folder of package capi.
func (h *header) files() map[string][]byte {
	return map[string][]byte{"../python/tensorcache/_abi.py": h.python(), "calls.c": h.calls()}
}
