package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/internal/flagfile"
)

// applyConfigFile sets the flags that a JSON file names and the command line does not.
func applyConfigFile(flags *pflag.FlagSet, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	settings, err := flagfile.ReadJSON(b)
	if err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	return flagfile.Apply(flags, path, settings)
}
