package resp

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// identity is what other connections see of one. It does not change once it is made.
type identity struct {
	name, lib, libVersion, user string
	proto                       int
	tracking                    bool
}

// identify changes the connection's identity.
func (c *conn) identify(change func(*identity)) {
	next := *c.who.Load()
	change(&next)
	c.who.Store(&next)
}

// printable reports whether a text is of printable ASCII without spaces, and not too long.
func printable(b []byte) bool {
	return len(b) <= 256 && !slices.ContainsFunc(b, func(b byte) bool { return b < '!' || b > '~' })
}

func (c *conn) clientGetName([][]byte) error {
	if name := c.who.Load().name; name != "" {
		c.text(name)
	} else {
		c.null()
	}
	return nil
}

func (c *conn) clientSetName(args [][]byte) error {
	if !printable(args[0]) {
		return errName
	}
	c.identify(func(i *identity) { i.name = string(args[0]) })
	c.ok()
	return nil
}

func (c *conn) clientSetInfo(args [][]byte) error {
	if !printable(args[1]) {
		return failure(fmt.Sprintf("ERR %s cannot contain spaces, newlines or special characters.", strings.ToLower(cut(args[0]))))
	}
	switch strings.ToUpper(cut(args[0])) {
	case "LIB-NAME":
		c.identify(func(i *identity) { i.lib = string(args[1]) })
	case "LIB-VER":
		c.identify(func(i *identity) { i.libVersion = string(args[1]) })
	default:
		return fmt.Errorf("ERR Unrecognized option '%s'", cut(args[0]))
	}
	c.ok()
	return nil
}

// line describes a connection as CLIENT LIST does. Any goroutine may call it. What this server does not have is 0.
func (c *conn) line() string {
	i, now, last, flag, redirect := c.who.Load(), time.Now(), "NULL", "N", -1
	if cmd := c.last.Load(); cmd != nil {
		last = cmd.full
	}
	if i.tracking {
		flag, redirect = "t", 0
	}
	seen := time.Unix(0, c.seen.Load())
	c.holder.memory.mu.Lock()
	held := c.holder.bytes
	c.holder.memory.mu.Unlock()
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=0 name=%s age=%d idle=%d flags=%s db=0 sub=0 psub=0 ssub=0 multi=%d qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 "+
		"omem=0 tot-mem=%d events=r cmd=%s user=%s redir=%d resp=%d lib-name=%s lib-ver=%s", c.id, c.net.RemoteAddr(), c.net.LocalAddr(), i.name, int(now.Sub(c.begun).Seconds()),
		int(max(0, now.Sub(seen)).Seconds()), flag, c.queued.Load()-1, held, last, i.user, redirect, i.proto, i.lib, i.libVersion)
}

// others returns the connections that the connection's user may see, by their numbers: those of the same user, or all.
func (c *conn) others() (all []*conn) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	for other := range c.server.mu.conns {
		if c.user.Admin || other.who.Load().user == c.user.Name {
			all = append(all, other)
		}
	}
	slices.SortFunc(all, func(a, b *conn) int { return int(a.id - b.id) })
	return all
}

func (c *conn) clientList(args [][]byte) error {
	keep := func(*conn) bool { return true }
	switch option := strings.ToUpper(cut(slices.Concat(args, [][]byte{nil})[0])); {
	case option == "":
	case option == "TYPE" && len(args) == 2:
		is, err := ofType(cut(args[1]))
		if err != nil {
			return err
		}
		keep = is
	case option == "ID" && len(args) >= 2:
		var ids []int64
		for _, a := range args[1:] {
			id, ok := number(a)
			if !ok {
				return failure("ERR Invalid client ID")
			}
			ids = append(ids, id)
		}
		keep = func(other *conn) bool { return slices.Contains(ids, other.id) }
	default:
		return errSyntax
	}
	var b strings.Builder
	for _, other := range c.others() {
		if keep(other) {
			b.WriteString(other.line() + "\n")
		}
	}
	c.verbatim(b.String())
	return nil
}

// ofType tests whether a connection is of a type of clients of Redis. All are normal ones.
func ofType(name string) (func(*conn) bool, error) {
	name = strings.ToLower(name)
	if !slices.Contains([]string{"normal", "master", "replica", "slave", "pubsub"}, name) {
		return nil, fmt.Errorf("ERR Unknown client type '%s'", name)
	}
	return func(*conn) bool { return name == "normal" }, nil
}

// clientKill is CLIENT KILL addr:port, or with options, all of which must hold.
func (c *conn) clientKill(args [][]byte) error {
	type test = func(*conn) bool
	var tests []test
	options := len(args) > 1
	skipMe := options
	by := func(option, value string) (test, error) {
		n, isNumber := number([]byte(value))
		switch option {
		case "ADDR":
			return func(o *conn) bool { return o.net.RemoteAddr().String() == value }, nil
		case "LADDR":
			return func(o *conn) bool { return o.net.LocalAddr().String() == value }, nil
		case "USER":
			return func(o *conn) bool { return o.who.Load().user == value }, nil
		case "ID":
			if !isNumber {
				return nil, failure("ERR client-id should be greater than 0")
			}
			return func(o *conn) bool { return o.id == n }, nil
		case "MAXAGE":
			if !isNumber {
				return nil, errInteger
			}
			return func(o *conn) bool { return int64(time.Since(o.begun)/time.Second) >= n }, nil
		case "TYPE":
			return ofType(cut([]byte(value)))
		case "SKIPME":
			if skipMe = strings.EqualFold(value, "yes"); !skipMe && !strings.EqualFold(value, "no") {
				return nil, errSyntax
			}
			return func(*conn) bool { return true }, nil
		}
		return nil, errSyntax
	}
	if len(args) == 1 {
		args = [][]byte{[]byte("ADDR"), args[0]}
	} else if len(args)%2 == 1 {
		return errSyntax
	}
	for i := 0; i < len(args); i += 2 {
		t, err := by(strings.ToUpper(cut(args[i])), string(args[i+1]))
		if err != nil {
			return err
		}
		tests = append(tests, t)
	}
	n := 0
	for _, other := range c.others() {
		if other == c && skipMe || slices.ContainsFunc(tests, func(t test) bool { return !t(other) }) {
			continue
		}
		if n++; other == c {
			c.quit = true // after the reply
			continue
		}
		other.killed.Store(true)
		other.ahead.Conn.Close()
	}
	switch {
	case options:
		c.integer(int64(n))
	case n == 0:
		return failure("ERR No such client")
	default:
		c.ok()
	}
	return nil
}

// clientReply is CLIENT REPLY. Without its replies a client that asked for none would take later ones for those of other commands, so the connection ends.
func (c *conn) clientReply(args [][]byte) error {
	switch strings.ToUpper(cut(args[0])) {
	case "ON":
		c.ok()
		return nil
	case "OFF", "SKIP":
		c.quit = true
		return failure("ERR CLIENT REPLY OFF and SKIP are not supported: the connection ends")
	}
	return errSyntax
}

// onOff is a command that is accepted and changes nothing.
func (c *conn) onOff(args [][]byte) error {
	if word := cut(args[0]); !strings.EqualFold(word, "on") && !strings.EqualFold(word, "off") {
		return errSyntax
	}
	c.ok()
	return nil
}

// tracking is what CLIENT TRACKING is set to. Whatever the options are, a change of any row empties the client's cache: one row has keys of several spellings.
type tracking struct{ on, optIn, optOut, broadcast bool }

// track changes what the connection tracks.
func (c *conn) track(t tracking) {
	if t.on != c.tracking.on {
		c.identify(func(i *identity) { i.tracking = t.on })
		if t.on {
			c.server.invalidation.join(c)
		} else {
			c.server.invalidation.leave(c)
		}
	}
	c.tracking = t
}

func (c *conn) clientTracking(args [][]byte) error {
	var next tracking
	switch strings.ToUpper(cut(args[0])) {
	case "ON":
		next.on = true
	case "OFF":
		c.track(tracking{})
		c.ok()
		return nil
	default:
		return errSyntax
	}
	for rest := args[1:]; len(rest) > 0; rest = rest[1:] {
		switch strings.ToUpper(cut(rest[0])) {
		case "OPTIN":
			next.optIn = true
		case "OPTOUT":
			next.optOut = true
		case "BCAST":
			next.broadcast = true
		case "NOLOOP":
		case "PREFIX":
			if rest = rest[1:]; len(rest) == 0 {
				return errSyntax
			}
		case "REDIRECT":
			return failure("ERR REDIRECT is not supported: use RESP3, which needs none")
		default:
			return errSyntax
		}
	}
	switch {
	case c.proto != 3:
		return failure("ERR Client tracking can be switched on only in RESP3 mode (HELLO 3): this server has no REDIRECT")
	case next.optIn && next.optOut:
		return failure("ERR You can't use both OPTIN and OPTOUT")
	}
	c.track(next)
	c.ok()
	return nil
}

// clientCaching is CLIENT CACHING. Nothing depends on it, because every change is told.
func (c *conn) clientCaching(args [][]byte) error {
	word := strings.ToUpper(cut(args[0]))
	switch {
	case word != "YES" && word != "NO":
		return errSyntax
	case word == "YES" && !c.tracking.optIn:
		return failure("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
	case word == "NO" && !c.tracking.optOut:
		return failure("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
	}
	c.ok()
	return nil
}

func (c *conn) clientGetRedir([][]byte) error {
	if c.tracking.on {
		c.integer(0)
	} else {
		c.integer(-1)
	}
	return nil
}

func (c *conn) clientTrackingInfo([][]byte) error {
	flags := []string{"off"}
	if c.tracking.on {
		flags = []string{"on"}
		for word, is := range map[string]bool{"optin": c.tracking.optIn, "optout": c.tracking.optOut, "bcast": c.tracking.broadcast} {
			if is {
				flags = append(flags, word)
			}
		}
		slices.Sort(flags[1:])
	}
	c.dict(3)
	c.text("flags")
	c.words(flags)
	c.text("redirect")
	c.clientGetRedir(nil)
	c.text("prefixes")
	c.array(0)
	return nil
}
