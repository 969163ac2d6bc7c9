package flagfile

import (
	"fmt"
	"os"
	"sync"

	"github.com/spf13/pflag"
)

// renamed is a flag by an earlier name: its values go to the flag of today.
type renamed struct {
	pflag.Value
	set               *pflag.FlagSet
	program, old, now string
}

// noted has the earlier names that a notice has been printed for: programs may read their arguments twice.
var noted sync.Map

// Set implements pflag.Value.
func (r *renamed) Set(value string) error {
	if _, before := noted.LoadOrStore(r.old, true); !before {
		fmt.Fprintf(os.Stderr, "%s: --%s is --%s now; the old name goes with the next release\n", r.program, r.old, r.now)
	}
	return r.set.Set(r.now, value)
}

// Rename defines an earlier name of flag now, which is taken with a notice on standard error, also as a key of a file. --help does not list it.
func Rename(f *pflag.FlagSet, program, old, now string) {
	f.Var(&renamed{f.Lookup(now).Value, f, program, old, now}, old, "")
	f.Lookup(old).Hidden = true
}
