// Command lint is staticcheck without three checks, for which it looks into every function of all dependencies: SA4017 (a pure function's result is not used),
// SA4023 (an interface with a type is compared with nil) and SA5012 (a list of pairs has an odd length). make test-long has them.
package main

import (
	"os"
	"slices"

	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/lintcmd"
	"honnef.co/go/tools/lintcmd/version"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

func main() {
	cmd := lintcmd.NewCommand("lint")
	cmd.SetVersion(version.Version, version.MachineVersion)
	cmd.ParseFlags(os.Args[1:])
	for _, a := range slices.Concat(simple.Analyzers, staticcheck.Analyzers, stylecheck.Analyzers, []*lint.Analyzer{unused.Analyzer}) {
		if !slices.Contains([]string{"SA4017", "SA4023", "SA5012"}, a.Analyzer.Name) {
			cmd.AddAnalyzers(a)
		}
	}
	// Other checks ask which functions of dependencies never return.
	cmd.AddAnalyzers(&lint.Analyzer{Doc: &lint.RawDocumentation{}, Analyzer: ctrlflow.Analyzer})
	cmd.Run()
}
