package resp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// run replies to one command, or queues it.
func (c *conn) run(args [][]byte) {
	cmd, names, err := find(args)
	if err == nil {
		err = c.permits(cmd, args)
	} else if c.user == nil {
		err = errNoAuth
	}
	if err == nil && c.multi != nil && (cmd.name == "auth" || cmd.name == "hello") { // others wait while EXEC runs, and logins take long
		err = failure("ERR Command not allowed inside a transaction")
	}
	switch {
	case err != nil:
		c.settle() // replies come in the order of the commands
		c.server.counters.reject(cmd)
		if c.multi != nil {
			c.multi.broken = true
		}
		c.fail(err.Error())
	case c.multi != nil && cmd.queues():
		c.settle()
		if err := c.multi.queue(cmd, names, args); err != nil {
			c.failed = err
			return
		}
		c.queued.Add(1)
		c.out = append(c.out, "+QUEUED\r\n"...)
	default:
		c.call(cmd, names, args)
	}
	if len(c.out) >= flushBytes {
		c.flush()
	}
}

// permits returns an error if the connection cannot run a command. Rights to tables are not looked at.
func (c *conn) permits(cmd *command, args [][]byte) error {
	if c.user == nil && cmd.right != anybody {
		return errNoAuth
	}
	if err := cmd.checked(args); err != nil {
		return err
	}
	if cmd.right == ofAdmin && !c.user.Admin {
		return fmt.Errorf("NOPERM User %s has no permissions to run the '%s' command: it is for users with admin", c.user.name(), cmd.full)
	}
	return nil
}

// call runs a command. Its first arguments are its name. GETs wait for each other: settle replies to them.
func (c *conn) call(cmd *command, names int, args [][]byte) {
	var err error
	if cmd == cmdGet {
		if err = c.get(args[1:]); err == nil {
			return
		}
	}
	c.settle() // a GET that is wrong comes after those that wait, too
	begun := time.Now()
	if cmd != cmdGet {
		c.last.Store(cmd)
		err = cmd.run(c, args[names:])
	}
	c.took(cmd, begun, args)
	if err != nil {
		if no, ok := err.(errNoRight); ok {
			err = c.refusal(cmd, no)
		}
		c.server.counters.of[cmd.id].failed.Add(1)
		c.fail(err.Error())
	}
}

// refusal is the error of a command of a user without the right to a table.
func (c *conn) refusal(cmd *command, no errNoRight) error {
	do, need := "read", ""
	if no.to == writeRows {
		do, need = "change", ": log in as one that may (AUTH USER PASSWORD)"
		if !c.server.users.Load().writers(no.table) {
			need = ": no user may, because this server has no password for admin (tensorcached --resp-admin-password-file) and no such user in --resp-users"
		}
	}
	return fmt.Errorf("NOPERM user %s has no permission to %s rows of table %s (%s)%s", c.user.name(), do, no.table, strings.ToUpper(cmd.full), need)
}

// failure is an error with the code that Redis has for it.
type failure string

func (f failure) Error() string { return string(f) }

const (
	errNoAuth    = failure("NOAUTH Authentication required.")
	errWrongPass = failure("WRONGPASS invalid username-password pair or user is disabled.")
	errSyntax    = failure("ERR syntax error")
	errInteger   = failure("ERR value is not an integer or out of range")
	errName      = failure("ERR Client names cannot contain spaces, newlines or special characters.")
)

func (c *conn) login(name string, password []byte) error {
	s := c.server
	var of *user
	ctx, cancel := context.WithTimeout(s.open, loginTime) // a client that has gone is not noticed meanwhile, and holds one of MaxClients
	defer cancel()
	if !s.logins.Try(ctx, c.net.RemoteAddr().String(), func() bool {
		of = s.users.Load().login(name, password)
		return of != nil
	}) {
		s.failed.Record(s.o.Logger, slog.LevelWarn, "resp: login failed", slog.String("user", cut([]byte(name))), c.from())
		return errWrongPass
	}
	if c.user == nil {
		c.deadline(time.Time{})
	}
	c.setUser(of)
	return nil
}

func (c *conn) auth(args [][]byte) error {
	user, password := "default", args[0]
	switch len(args) {
	case 1:
		if c.server.users.Load().first() != nil {
			return failure("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
		}
	case 2:
		user, password = string(args[0]), args[1]
	default:
		return errSyntax
	}
	if err := c.login(user, password); err != nil {
		return err
	}
	c.ok()
	return nil
}

func (c *conn) hello(args [][]byte) error {
	proto, name := c.proto, c.who.Load().name
	var credentials [][]byte
	if len(args) > 0 {
		n, ok := number(args[0])
		if !ok || n != 2 && n != 3 {
			return failure("NOPROTO unsupported protocol version")
		}
		proto = int(n)
		for rest := args[1:]; len(rest) > 0; {
			switch word := strings.ToUpper(cut(rest[0])); {
			case word == "AUTH" && len(rest) >= 3:
				credentials, rest = rest[1:3], rest[3:]
			case word == "SETNAME" && len(rest) >= 2:
				if !printable(rest[1]) {
					return errName
				}
				name, rest = string(rest[1]), rest[2:]
			default:
				return fmt.Errorf("ERR Syntax error in HELLO option '%s'", cut(rest[0]))
			}
		}
	}
	if credentials != nil {
		if err := c.login(string(credentials[0]), credentials[1]); err != nil {
			return err
		}
	}
	if c.user == nil {
		return failure("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used " +
			"to authenticate the client and select the RESP protocol version at the same time")
	}
	if c.proto = proto; proto == 2 {
		c.track(tracking{}) // its messages need RESP3
	}
	c.identify(func(i *identity) { i.name, i.proto = name, proto })
	c.dict(7)
	c.text("server")
	c.text("tensorcache")
	c.text("version")
	c.text(c.server.o.Version)
	c.text("proto")
	c.integer(int64(c.proto))
	c.text("id")
	c.integer(c.id)
	c.text("mode")
	c.text("standalone")
	c.text("role")
	c.text("master")
	c.text("modules")
	c.array(0)
	return nil
}

func (c *conn) ping(args [][]byte) error {
	switch len(args) {
	case 0:
		c.simple("PONG")
	case 1:
		c.bulk(args[0])
	default:
		return failure("ERR wrong number of arguments for 'ping' command")
	}
	return nil
}

func (c *conn) reset([][]byte) error {
	c.discardAll()
	c.track(tracking{})
	c.setUser(c.server.users.Load().first())
	c.proto = 2
	c.identify(func(i *identity) { i.name, i.proto = "", 2 })
	if c.user == nil {
		c.deadline(time.Now().Add(loginTime))
	}
	c.simple("RESET")
	return nil
}

func (c *conn) selectDB(args [][]byte) error {
	if n, ok := number(args[0]); !ok || n != 0 {
		return failure("ERR DB index is out of range")
	}
	c.ok()
	return nil
}

func (c *conn) time([][]byte) error {
	now := time.Now()
	c.array(2)
	c.text(strconv.FormatInt(now.Unix(), 10))
	c.text(strconv.Itoa(now.Nanosecond() / 1000))
	return nil
}

func (c *conn) roleCommand([][]byte) error {
	c.array(3)
	c.text("master")
	c.integer(0)
	c.array(0)
	return nil
}

// configGet is CONFIG GET: what clients and monitors of Redis ask for, as this server has it.
func (c *conn) configGet(patterns [][]byte) error {
	o := &c.server.o
	globs := make([]glob, len(patterns))
	for i, pattern := range patterns {
		var err error
		if globs[i], err = globOf(bytes.ToLower(pattern)); err != nil {
			return err
		}
	}
	var found [][2]string
	for _, p := range [][2]string{
		{"appendonly", "no"},
		{"cluster-enabled", "no"},
		{"databases", "1"},
		{"maxclients", strconv.Itoa(o.MaxClients)},
		{"maxmemory", "0"},
		{"maxmemory-clients", strconv.FormatInt(o.MaxMemory, 10)},
		{"maxmemory-policy", "noeviction"},
		{"notify-keyspace-events", ""},
		{"port", c.port()},
		{"proto-max-bulk-len", strconv.Itoa(maxBulk)},
		{"save", ""},
		{"slowlog-log-slower-than", strconv.FormatInt(slowTime.Microseconds(), 10)},
		{"slowlog-max-len", strconv.Itoa(slowMost)},
		{"timeout", strconv.Itoa(int(o.IdleTime.Seconds()))},
	} {
		if slices.ContainsFunc(globs, func(g glob) bool { return g.matches(p[0]) }) {
			found = append(found, p)
		}
	}
	c.dict(len(found))
	for _, p := range found {
		c.text(p[0])
		c.text(p[1])
	}
	return nil
}

// aclList is ACL LIST, without what passwords are kept as.
func (c *conn) aclList([][]byte) error {
	all := *c.server.users.Load()
	c.array(len(all))
	for _, name := range all.names() {
		of := all[name]
		line := "user " + name + " on"
		if of.open {
			line += " nopass"
		}
		for _, table := range of.Read {
			line += " %R~" + keysOf(table)
		}
		for _, table := range of.Write {
			line += " %W~" + keysOf(table)
		}
		line += " +@all"
		if !of.Admin {
			line += " -@admin"
		}
		c.text(line)
	}
	return nil
}

// keysOf is the pattern of a table's keys.
func keysOf(table string) string {
	if table == "*" {
		return table
	}
	return table + ":*"
}

func (c *conn) aclUsers([][]byte) error {
	all := c.server.users.Load().names()
	c.array(len(all))
	for _, name := range all {
		c.text(name)
	}
	return nil
}

// port returns the port that a client came to.
func (c *conn) port() string {
	_, port, err := net.SplitHostPort(c.net.LocalAddr().String())
	if err != nil {
		return strconv.Itoa(0)
	}
	return port
}
