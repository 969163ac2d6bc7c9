package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/dtype"
)

// visitCommands visits the commands of cachebench that --help lists, and their sub-commands.
func visitCommands(t *testing.T, visit func(*cobra.Command)) {
	t.Helper()
	var below func(*cobra.Command)
	below = func(c *cobra.Command) {
		for _, cmd := range c.Commands() {
			if cmd.Deprecated == "" && !cmd.Hidden && cmd.Name() != "help" && cmd.Name() != "completion" {
				visit(cmd)
				below(cmd)
			}
		}
	}
	below(newRoot())
}

// TestHelp_Groups: every flag of a command is under one heading, and no heading has names of no flag.
func TestHelp_Groups(t *testing.T) {
	seen := map[string]int{"help": 0, "version": 0}
	visitCommands(t, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if seen[f.Name] = 0; !f.Hidden && !grouped(f.Name) {
				t.Errorf("%s: --%s is in no group", cmd.CommandPath(), f.Name)
			}
		})
	})
	for _, g := range flagGroups {
		for name := range strings.FieldsSeq(g.Flags) {
			if n, known := seen[name]; !known || n > 0 {
				t.Errorf("group %s: --%s is no flag, or in two groups", g.Heading, name)
			}
			seen[name]++
		}
	}
}

// grouped says whether a flag is in a group.
func grouped(name string) bool {
	for _, g := range flagGroups {
		for of := range strings.FieldsSeq(g.Flags) {
			if of == name {
				return true
			}
		}
	}
	return false
}

// TestHelp_Page: docs/cachebench-flags.md is what --help prints. -update writes it.
func TestHelp_Page(t *testing.T) {
	const path = "../../docs/cachebench-flags.md"
	var page bytes.Buffer
	page.WriteString("# Flags of cachebench\n\nFor users of the command: what `--help` prints, written by `go test ./cmd/cachebench -run Help_Page -update`. [cachebench.md](cachebench.md) says what to use them for.\n")
	visitCommands(t, func(cmd *cobra.Command) {
		var help bytes.Buffer
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&page, "\n## %s\n\n```\n%s```\n", cmd.CommandPath(), help.String())
	})
	if *update {
		if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, page.Bytes()) {
		t.Errorf("%s is not what --help prints: go test ./cmd/cachebench -run Help_Page -update (%v)", path, err)
	}
}

// TestHelp_File: a table or trace is given alike as the argument and by its flag.
func TestHelp_File(t *testing.T) {
	t.Parallel()
	features, ids := write(t, "f.npy", npyOf(t, dtype.Float32, smooth(1000*16), 1000, 16)), write(t, "ids.txt", []byte(strings.Repeat("1\n2\n3\n900\n", 100)))
	for _, c := range []struct{ command, flag, file, more string }{
		{"run", "--features", features, "--json --codec none --batches 2 --train-batches 1 --explain 3"},
		{"plan", "--features", features, "--json --codec none --target-hit 50% --ids " + ids},
		{"compress", "--features", features, "--bounds --codec ibp4"},
		{"pack", "--features", features, "--codec ibp4 --stage none --out"},
		{"simulate", "--trace", ids, "--unit-size --policy lru --sizes 2 --json"},
	} {
		run := func(file ...string) string {
			args := append([]string{c.command}, strings.Fields(c.more)...)
			if c.command == "pack" {
				args = append(args, t.TempDir()+"/out")
			}
			return succeed(t, append(args, file...)...)
		}
		// Times differ from call to call: so the number of lines is compared, and the third one, which has none.
		byArgument, byFlag := run(c.file), run(c.flag, c.file)
		if len(byArgument) < 50 || len(strings.Split(byArgument, "\n")) != len(strings.Split(byFlag, "\n")) || strings.Split(byArgument, "\n")[2] != strings.Split(byFlag, "\n")[2] {
			t.Errorf("%s:\n%s\n%s", c.command, byArgument, byFlag)
		}
		refuse(t, c.command+`: argument ("`+c.file+`") and `+c.flag+" contradict each other: either is the file", c.command, c.file, c.flag, c.file)
	}
}
