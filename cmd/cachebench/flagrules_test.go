package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestFlagRules_NameFlags: every rule applies to some command, which has all flags that the rule names: a flag that is renamed takes its rules along.
func TestFlagRules_NameFlags(t *testing.T) {
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		all = append(all, c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
	for _, r := range flagRules {
		applies := false
		for _, c := range all {
			has := true
			for name := range strings.FieldsSeq(r.flags + " " + r.given + " " + r.missing) {
				name, _, _ = strings.Cut(name, "=")
				has = has && c.Flags().Lookup(name) != nil
			}
			applies = applies || has
		}
		if !applies {
			t.Errorf("no command has all flags of the rule %+v", r)
		}
	}
}
