// Package version says what the program was built from. Safe for concurrent use.
package version

import "runtime/debug"

// commit is what the binary was built from. The linker sets it in make build.
var commit string

// String returns what --version of a command says: the version and the commit.
func String() string { return Number + " (" + Commit() + ")" }

// Commit returns what the binary was built from: a commit, a module's version, or "unknown".
func Commit() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "unknown"
}

// Tags returns the build tags of this program, comma-separated. A test that has the go command build or test something with the same tags reuses what is compiled.
func Tags() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-tags" {
				return s.Value
			}
		}
	}
	return ""
}
