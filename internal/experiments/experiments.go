// Package experiments names changes that wait to be measured on a GPU. None is on unless the environment variable
// TENSORCACHE_EXPERIMENTS names it, among others separated by commas, when the process starts: docs/performance.md says what
// each is expected to do. They may go at any time, into the code or out of it.
package experiments

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Variable is the environment variable.
const Variable = "TENSORCACHE_EXPERIMENTS"

// The experiments.
const (
	// MergeMisses reads a row once that several misses near each other in the ordered list ask for.
	MergeMisses = "merge-misses"
	// ShareSmall lets the host help with the misses of tables from 1 GiB on instead of 4 GiB.
	ShareSmall = "share-small"
)

var (
	all = []string{MergeMisses, ShareSmall}
	on  = strings.FieldsFunc(os.Getenv(Variable), func(r rune) bool { return r == ',' })
)

// On says whether an experiment is on.
func On(name string) bool { return slices.Contains(on, name) }

// Named returns those that are on, or an error for a name that is none.
func Named() ([]string, error) {
	for _, name := range on {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("experiments: %s (%q) must name some of %s", Variable, name, strings.Join(all, ", "))
		}
	}
	return on, nil
}
