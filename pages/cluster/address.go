package cluster

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// address is a parsed URL.
type address struct {
	tls   bool
	nodes []string // HOST:PORT
	table string
}

// TableOf returns the name of the table that an address has, "" if it has none or is no address.
func TableOf(url string) string {
	a, _ := parse(url)
	return a.table
}

const defaultPort = "6379"

// IsAddress reports whether text is an address of a cluster rather than a path.
func IsAddress(text string) bool {
	return strings.HasPrefix(text, "redis://") || strings.HasPrefix(text, "rediss://")
}

// parse reads redis://HOST:PORT[,HOST:PORT…][/TABLE], or the same with rediss, which means TLS. Some of the nodes are enough: they know the
// others.
func parse(text string) (address, error) {
	fail := func(format string, args ...any) (address, error) {
		return address{}, fmt.Errorf("cluster: address "+format, args...)
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "redis" && scheme != "rediss" {
		return fail("(%s) must be redis://HOST:PORT[,HOST:PORT…][/TABLE] or begin with rediss://", text)
	}
	a := address{tls: scheme == "rediss"}
	hosts, table, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		// The text is not repeated: it may hold a password.
		return fail("must not have user or password: set %s and %s or %s", envUser, envPassword, envPasswordFile)
	}
	if strings.ContainsAny(rest, "?#") {
		return fail("(%s) must not have ? or #", text)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		h, port, err := net.SplitHostPort(host)
		if missing := new(net.AddrError); errors.As(err, &missing) && missing.Err == "missing port in address" {
			h, port, err = strings.Trim(host, "[]"), defaultPort, nil
		}
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || h == "" || bad != nil || n == 0 {
			return fail("(%s): node (%s) must be HOST:PORT", text, host)
		}
		a.nodes = append(a.nodes, net.JoinHostPort(h, port))
	}
	if a.table = table; table != "" {
		if err := checkName(table); err != nil {
			return address{}, err
		}
	}
	return a, nil
}

// maxName is the most bytes of a table's name.
const maxName = 255

// checkName returns an error if keys cannot hold a table's name.
func checkName(name string) error {
	bad := strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '{' || r == '}' || r == '/' })
	if name == "" || len(name) > maxName || bad {
		return fmt.Errorf("cluster: name of the table (%.40q) must have 1 to %d bytes, without spaces, braces and slashes", name, maxName)
	}
	return nil
}
