package main

import (
	"fmt"
	"regexp"
	"strings"
)

// symbol is one line of symbols.txt.
type symbol struct {
	name     string // as the link and current drivers know it
	fallback string // as older drivers do; may be empty
}

var symbolName = regexp.MustCompile(`^cu[A-Z]\w*$`)

// parseSymbols reads symbols.txt: one symbol per line, sorted, # starts a comment.
func parseSymbols(list string) ([]symbol, error) {
	var symbols []symbol
	for i, line := range strings.Split(list, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) > 2 {
			return nil, fmt.Errorf("symbols.txt:%d: %d names, at most 2", i+1, len(fields))
		}
		for _, name := range fields {
			if !symbolName.MatchString(name) {
				return nil, fmt.Errorf("symbols.txt:%d: %q is no driver entry", i+1, name)
			}
		}
		s := symbol{name: fields[0]}
		if len(fields) == 2 {
			s.fallback = fields[1]
		}
		if n := len(symbols); n > 0 && symbols[n-1].name >= s.name {
			return nil, fmt.Errorf("symbols.txt:%d: %s is not after %s", i+1, s.name, symbols[n-1].name)
		}
		symbols = append(symbols, s)
	}
	return symbols, nil
}
