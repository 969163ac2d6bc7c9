package resp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// command describes a command for the server, and for COMMAND.
type command struct {
	name string
	// arity is Redis's: the number of arguments with the name; negative: at least that many.
	arity   int
	role    role // whom it is for; those of writing change the table that their first argument names
	summary string
	flags   []string
	first   int // position of the first key, 0: none
	last    int // position of the last key; -1: the last argument
	run     func(c *conn, args [][]byte) error
}

// commands are sorted by name. The table is made by init because COMMAND reads it.
var commands []command

func init() {
	commands = []command{
		{"auth", -2, unknown, "Authenticates: AUTH [user] password", []string{"fast", "noscript"}, 0, 0, (*conn).auth},
		{"client", -2, reading, "Names and describes the connection", []string{"fast"}, 0, 0, (*conn).client},
		{"command", -1, reading, "Lists the commands", []string{"fast"}, 0, 0, (*conn).command},
		{"config", -3, reading, "CONFIG GET: there are no parameters", []string{"fast"}, 0, 0, (*conn).config},
		{"dbsize", 1, reading, "Number of rows of all tables", []string{"readonly", "fast"}, 0, 0, (*conn).dbsize},
		{"echo", 2, reading, "Returns its argument", []string{"fast"}, 0, 0, func(c *conn, args [][]byte) error { c.bulk(args[0]); return nil }},
		{"exists", -2, reading, "How many of the rows exist", []string{"readonly", "fast"}, 1, -1, (*conn).exists},
		{"get", 2, reading, "A row: GET table:row", []string{"readonly", "fast"}, 1, 1, (*conn).get},
		{"hello", -1, unknown, "Chooses the protocol: HELLO [2|3 [AUTH user password] [SETNAME name]]", []string{"fast", "noscript"}, 0, 0, (*conn).hello},
		{"info", -1, reading, "Statistics, as text", []string{"fast"}, 0, 0, (*conn).info},
		{"mget", -2, reading, "Rows: MGET table:row ...", []string{"readonly", "fast"}, 1, -1, (*conn).mget},
		{"ping", -1, reading, "Answers", []string{"fast"}, 0, 0, (*conn).ping},
		{"quit", -1, unknown, "Ends the connection", []string{"fast", "noscript"}, 0, 0, func(c *conn, _ [][]byte) error { c.ok(); c.quit = true; return nil }},
		{"reset", 1, unknown, "Makes the connection as it began", []string{"fast", "noscript"}, 0, 0, (*conn).reset},
		{"select", 2, reading, "SELECT 0", []string{"fast"}, 0, 0, (*conn).selectDB},
		{"tc.explain", -3, reading, "Where rows are, or why they are not cached: TC.EXPLAIN table row ...", []string{"readonly"}, 0, 0, (*conn).explain},
		{"tc.gather", -3, reading, "Rows back to back: TC.GATHER table row ...", []string{"readonly"}, 0, 0, (*conn).gatherRows},
		{"tc.set", -4, writing, "Replaces rows, or appends some behind the last one: TC.SET table row value ...", []string{"write"}, 0, 0, (*conn).set},
		{"tc.stats", 1, reading, "Statistics, as JSON", []string{"readonly"}, 0, 0, (*conn).stats},
	}
}

// find returns the command of a name, in any case.
func find(name []byte) (*command, bool) {
	var lower [16]byte
	if len(name) > len(lower) {
		return nil, false
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	i, ok := slices.BinarySearchFunc(commands, string(lower[:len(name)]), func(c command, name string) int { return strings.Compare(c.name, name) })
	if !ok {
		return nil, false
	}
	return &commands[i], true
}

// run replies to one command.
func (c *conn) run(args [][]byte) {
	cmd, ok := find(args[0])
	if !ok || cmd.name != "get" {
		c.settle() // replies come in the order of the commands
	}
	var err error
	switch {
	case !ok && c.role != unknown:
		err = fmt.Errorf("ERR unknown command '%s'", cut(args[0]))
	case !ok || c.role == unknown && cmd.role != unknown:
		err = errNoAuth
	case cmd.arity > 0 && len(args) != cmd.arity || len(args) < -cmd.arity:
		err = fmt.Errorf("ERR wrong number of arguments for '%s' command", cmd.name)
	case c.role < cmd.role:
		err = c.refusal(cmd, args[1])
	default:
		err = cmd.run(c, args[1:])
	}
	if err != nil {
		c.settle() // a GET that is wrong comes after those that wait
		c.fail(err.Error())
	}
	if len(c.out) >= flushBytes {
		c.flush()
	}
}

// refusal is the error of a command that changes a table, of a user who only reads. table is the command's argument, which may name none.
func (c *conn) refusal(cmd *command, table []byte) error {
	name := fmt.Sprintf("%q", cut(table))
	if i, err := c.gather.find(table); err == nil {
		name = c.gather.names[i]
	}
	need := "log in as user admin (AUTH admin PASSWORD)"
	if !c.server.users.Load().hasAdmin {
		need = "only user admin has it, and this server has no password for admin (tensorcached --resp-admin-password-file)"
	}
	return fmt.Errorf("NOPERM user %s has no permission to change rows of table %s (%s): %s", c.user(), name, strings.ToUpper(cmd.name), need)
}

// failure is an error with the code that Redis has for it.
type failure string

func (f failure) Error() string { return string(f) }

const (
	errNoAuth    = failure("NOAUTH Authentication required.")
	errWrongPass = failure("WRONGPASS invalid username-password pair or user is disabled.")
	errSyntax    = failure("ERR syntax error")
)

func (c *conn) login(name string, password []byte) error {
	s, r := c.server, unknown
	ctx, cancel := context.WithTimeout(s.open, loginTime) // a client that has gone is not noticed meanwhile, and holds one of MaxClients
	defer cancel()
	if !s.logins.Try(ctx, c.net.RemoteAddr().String(), func() bool {
		r = s.users.Load().login(name, password)
		return r != unknown
	}) {
		s.failed.Record(s.o.Logger, slog.LevelWarn, "resp: login failed", slog.String("user", cut([]byte(name))), c.from())
		return errWrongPass
	}
	if c.role == unknown {
		c.deadline(time.Time{})
	}
	c.setRole(r)
	return nil
}

func (c *conn) auth(args [][]byte) error {
	user, password := "default", args[0]
	switch len(args) {
	case 1:
		if u := c.server.users.Load(); u.open {
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
	proto, name := c.proto, c.name
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
	if c.role == unknown {
		return failure("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used " +
			"to authenticate the client and select the RESP protocol version at the same time")
	}
	c.proto, c.name = proto, name
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
	c.setRole(c.server.users.Load().first())
	c.proto, c.name = 2, ""
	if c.role == unknown {
		c.deadline(time.Now().Add(loginTime))
	}
	c.simple("RESET")
	return nil
}

// config is CONFIG GET, which load generators ask: no parameter of Redis is one of this server.
func (c *conn) config(args [][]byte) error {
	if !strings.EqualFold(cut(args[0]), "get") {
		return fmt.Errorf("ERR unknown subcommand '%s'", cut(args[0]))
	}
	c.dict(0)
	return nil
}

func (c *conn) selectDB(args [][]byte) error {
	if n, ok := number(args[0]); !ok || n != 0 {
		return failure("ERR DB index is out of range")
	}
	c.ok()
	return nil
}

const errName = failure("ERR Client names cannot contain spaces, newlines or special characters.")

// printable reports whether a text is of printable ASCII without spaces, and not too long.
func printable(b []byte) bool {
	return len(b) <= 256 && !slices.ContainsFunc(b, func(b byte) bool { return b < '!' || b > '~' })
}

func (c *conn) client(args [][]byte) error {
	switch sub := strings.ToLower(cut(args[0])); {
	case sub == "id" && len(args) == 1:
		c.integer(c.id)
	case sub == "getname" && len(args) == 1:
		if c.name == "" {
			c.null()
			break
		}
		c.text(c.name)
	case sub == "setname" && len(args) == 2:
		if !printable(args[1]) {
			return errName
		}
		c.name = string(args[1])
		c.ok()
	case sub == "setinfo" && len(args) == 3, (sub == "no-evict" || sub == "no-touch") && len(args) == 2:
		c.ok() // nothing depends on it
	case sub == "info" && len(args) == 1:
		c.verbatim(fmt.Sprintf("id=%d addr=%s laddr=%s name=%s db=0 resp=%d user=%s\n", c.id, c.net.RemoteAddr(), c.net.LocalAddr(), c.name, c.proto, c.user()))
	default:
		return fmt.Errorf("ERR unknown subcommand or wrong number of arguments for '%s'", cut(args[0]))
	}
	return nil
}

func (c *conn) user() string {
	if c.role == writing {
		return "admin"
	}
	return "default"
}

func (c *conn) command(args [][]byte) error {
	if len(args) == 0 {
		c.array(len(commands))
		for i := range commands {
			c.describe(&commands[i])
		}
		return nil
	}
	named := make([]*command, 0, len(commands))
	if len(args) > 1 {
		for _, name := range args[1:] {
			cmd, _ := find(name)
			named = append(named, cmd)
		}
	} else {
		for i := range commands {
			named = append(named, &commands[i])
		}
	}
	switch strings.ToLower(cut(args[0])) {
	case "count":
		c.integer(int64(len(commands)))
	case "list":
		c.array(len(commands))
		for i := range commands {
			c.text(commands[i].name)
		}
	case "info":
		c.array(len(named))
		for _, cmd := range named {
			if cmd == nil {
				c.null()
				continue
			}
			c.describe(cmd)
		}
	case "docs":
		named = slices.DeleteFunc(named, func(cmd *command) bool { return cmd == nil })
		c.dict(len(named))
		for _, cmd := range named {
			c.text(cmd.name)
			c.dict(2)
			c.text("summary")
			c.text(cmd.summary)
			c.text("group")
			c.text("generic")
		}
	default:
		return fmt.Errorf("ERR unknown subcommand '%s'", cut(args[0]))
	}
	return nil
}

// describe appends a command as COMMAND INFO lists it.
func (c *conn) describe(cmd *command) {
	step := min(cmd.first, 1)
	c.array(6)
	c.text(cmd.name)
	c.integer(int64(cmd.arity))
	c.array(len(cmd.flags))
	for _, f := range cmd.flags {
		c.simple(f)
	}
	c.integer(int64(cmd.first))
	c.integer(int64(cmd.last))
	c.integer(int64(step))
}

// port returns the port that a client came to.
func (c *conn) port() string {
	_, port, err := net.SplitHostPort(c.net.LocalAddr().String())
	if err != nil {
		return strconv.Itoa(0)
	}
	return port
}
