package main

import (
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/internal/flagfile"
	"github.com/tensorcache/tensorcache/pages/cluster"
)

// coldFlag is --cold: alone it begins with an empty cache, and with the address of a cluster it says where pages are.
type coldFlag struct{ cfg *experiment.Config }

// String implements pflag.Value.
func (c coldFlag) String() string {
	switch {
	case c.cfg == nil:
		return "false"
	case c.cfg.ColdPages != "":
		return c.cfg.ColdPages
	}
	return strconv.FormatBool(c.cfg.Cold)
}

// Set implements pflag.Value.
func (c coldFlag) Set(s string) error {
	if cluster.IsAddress(s) {
		c.cfg.ColdPages = s
		return nil
	}
	on, err := strconv.ParseBool(s)
	if err != nil {
		return flagfile.Takes("true, false, or the address of a cluster, redis://HOST:PORT")
	}
	c.cfg.Cold = on
	return nil
}

// Type implements pflag.Value. Flags of this type may be given without a value.
func (c coldFlag) Type() string { return "bool" }

// joinCold makes one argument of --cold and an address that follows it: flags that may be given without a value take none from the next argument. Any scheme counts, so
// that the error of one that is no cluster's names the flag.
func joinCold(args []string) (joined []string) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(joined, args[i:]...)
		}
		if args[i] == "--cold" && i+1 < len(args) && strings.Contains(args[i+1], "://") {
			joined = append(joined, "--cold="+args[i+1])
			i++
			continue
		}
		joined = append(joined, args[i])
	}
	return joined
}
