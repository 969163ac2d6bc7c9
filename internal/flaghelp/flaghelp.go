// Package flaghelp makes --help list the flags of a command under headings.
package flaghelp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/internal/flagfile"
)

// Width is how many columns --help takes.
const Width = 120

// Group is flags under a heading, by their names between spaces, in the order in which they are listed. A command may lack some.
type Group struct{ Heading, Flags string }

// Use makes errors of flags say what a flag takes, or which one may be meant, and --help of a command and of all its sub-commands list flags in groups. Flags that are in none come last. "help NAME" of a command that there is
// not becomes an error, which it is not with cobra's own.
func Use(root *cobra.Command, groups []Group) {
	root.SetFlagErrorFunc(flagError)
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			help := cmd.Run
			cmd.Run, cmd.RunE = nil, func(cmd *cobra.Command, args []string) error {
				if of, rest, err := root.Find(args); of == nil || err != nil || len(rest) > 0 {
					return fmt.Errorf("help: unknown command %q: %s --help lists them", strings.Join(args, " "), root.Name())
				}
				help(cmd, args)
				return nil
			}
		}
	}
	cobra.AddTemplateFunc("groupedFlags", func(cmd *cobra.Command) string { return list(cmd, groups) })
	const plain = "\n\nFlags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), plain, "{{groupedFlags .}}", 1))
}

func list(cmd *cobra.Command, groups []Group) string {
	rest := pflag.NewFlagSet("", pflag.ContinueOnError)
	rest.AddFlagSet(cmd.LocalFlags())
	var b strings.Builder
	write := func(heading string, of *pflag.FlagSet) {
		if of.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n\n%s:\n%s", heading, strings.TrimRight(of.FlagUsagesWrapped(Width), "\n"))
		}
	}
	for _, g := range groups {
		of := pflag.NewFlagSet("", pflag.ContinueOnError)
		of.SortFlags = false
		for name := range strings.FieldsSeq(g.Flags) {
			if f := rest.Lookup(name); f != nil {
				of.AddFlag(f)
			}
		}
		write(g.Heading, of)
		rest = without(rest, of)
	}
	write("More", rest)
	return b.String()
}

// without returns the flags of a set that are not in another one.
func without(all, others *pflag.FlagSet) *pflag.FlagSet {
	rest := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if others.Lookup(f.Name) == nil {
			rest.AddFlag(f)
		}
	})
	return rest
}

// flagError says what the value of a flag must be, or which flag is most like one that there is not.
func flagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return flagfile.ValueError(err)
	}
	name, like, least := unknown.GetSpecifiedName(), "", 3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		n := edits(name, f.Name)
		if strings.HasPrefix(f.Name, name) {
			n = min(n, 2)
		}
		if n < least && !f.Hidden {
			like, least = f.Name, n
		}
	})
	if like != "" && len(name) > 1 {
		return fmt.Errorf("%w: did you mean --%s?", err, like)
	}
	return fmt.Errorf("%w: %s --help lists them", err, cmd.CommandPath())
}

// edits is how many letters must be put in, taken out or replaced to make b of a (Levenshtein).
func edits(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range before {
		before[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			row[j+1] = min(before[j+1], row[j]) + 1
			if a[i] == b[j] {
				row[j+1] = min(row[j+1], before[j])
			} else {
				row[j+1] = min(row[j+1], before[j]+1)
			}
		}
		before, row = row, before
	}
	return before[len(b)]
}
