package resp

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// right is what a user must have to run a command. Rights to a table are asked for where the command's table is known ([gatherer.find]).
type right uint8

const (
	anybody   right = iota // also who has not logged in
	loggedIn               // every user
	ofAdmin                // users with admin
	readRows               // users that may read the table
	writeRows              // users that may change the table
)

// command describes a command. COMMAND, HELP, ACL CAT, errors, the counters and the table in docs/resp.md are made of it.
type command struct {
	name      string
	arguments string // as a person reads them
	// arity is Redis's: the number of arguments with the name (and of subcommands with theirs); negative: at least that many.
	arity   int
	right   right
	group   string // of Redis: connection, generic, server, string, transactions; tensorcache for commands of this server
	flags   string // of Redis, between spaces
	keys    int    // position of the first key, 0: none
	last    int    // position of the last key; -1: the last argument
	summary string
	run     func(c *conn, args [][]byte) error // gets what follows the names
	subs    []*command

	full string // the name, with that of the command it belongs to: client|list
	id   int    // index of its counters
}

// commands are sorted by name. They are set by init because some of them read the table.
var (
	commands []*command
	byName   = map[string]*command{}
	allNames []string // by id, subcommands among them
	cmdGet   *command
)

func init() {
	fast, ro := "fast", "readonly fast"
	free := "noscript loading stale fast no_auth"
	nothing := func(c *conn, _ [][]byte) error { c.ok(); return nil }
	commands = []*command{
		{name: "acl", group: "server", subs: []*command{
			{name: "cat", arguments: "[category]", arity: -2, flags: "noscript loading stale", summary: "Categories, or the commands of one", run: (*conn).aclCat},
			{name: "list", arity: 2, right: ofAdmin, flags: "admin noscript loading stale", summary: "Users with their rights", run: (*conn).aclList},
			{name: "users", arity: 2, right: ofAdmin, flags: "admin noscript loading stale", summary: "Names of users", run: (*conn).aclUsers},
			{name: "whoami", arity: 2, flags: "noscript loading stale", summary: "Name of the connection's user", run: func(c *conn, _ [][]byte) error { c.text(c.user.name()); return nil }},
		}},
		{name: "auth", arguments: "[user] password", arity: -2, right: anybody, group: "connection", flags: free, summary: "Logs in", run: (*conn).auth},
		{name: "client", group: "connection", subs: []*command{
			{name: "caching", arguments: "YES|NO", arity: 3, flags: fast, summary: "Whether the next command's rows are tracked, after TRACKING ON OPTIN or OPTOUT", run: (*conn).clientCaching},
			{name: "getname", arity: 2, flags: fast, summary: "Name of the connection", run: (*conn).clientGetName},
			{name: "getredir", arity: 2, flags: fast, summary: "-1, or 0 while TRACKING is on: there is no redirection", run: (*conn).clientGetRedir},
			{name: "id", arity: 2, flags: fast, summary: "Number of the connection", run: func(c *conn, _ [][]byte) error { c.integer(c.id); return nil }},
			{name: "info", arity: 2, flags: fast, summary: "The connection's line of LIST", run: func(c *conn, _ [][]byte) error { c.verbatim(c.line() + "\n"); return nil }},
			{name: "kill", arguments: "ADDR|ID|LADDR|USER|TYPE|MAXAGE|SKIPME value ...", arity: -3, flags: "admin", summary: "Ends connections of the same user; a user with admin, of all", run: (*conn).clientKill},
			{name: "list", arguments: "[TYPE normal] [ID id ...]", arity: -2, flags: "admin", summary: "Connections of the same user; for a user with admin, all", run: (*conn).clientList},
			{name: "no-evict", arguments: "ON|OFF", arity: 3, flags: fast, summary: "Accepted; changes nothing", run: (*conn).onOff},
			{name: "no-touch", arguments: "ON|OFF", arity: 3, flags: fast, summary: "Accepted; changes nothing", run: (*conn).onOff},
			{name: "reply", arguments: "ON|OFF|SKIP", arity: 3, flags: fast, summary: "ON is accepted; OFF and SKIP are errors that end the connection", run: (*conn).clientReply},
			{name: "setinfo", arguments: "LIB-NAME|LIB-VER text", arity: 4, flags: fast, summary: "Names the client's library", run: (*conn).clientSetInfo},
			{name: "setname", arguments: "name", arity: 3, flags: fast, summary: "Names the connection", run: (*conn).clientSetName},
			{name: "tracking", arguments: "ON|OFF [OPTIN|OPTOUT] [BCAST] [NOLOOP] [PREFIX p ...]", arity: -3, flags: fast, summary: "RESP3: any change of rows empties the client's own cache", run: (*conn).clientTracking},
			{name: "trackinginfo", arity: 2, flags: fast, summary: "What TRACKING is set to", run: (*conn).clientTrackingInfo},
		}},
		{name: "cluster", arguments: "...", arity: -2, group: "server", flags: "stale", summary: "An error: there is no cluster mode", run: func(*conn, [][]byte) error { return failure("ERR This instance has cluster support disabled") }},
		{name: "command", arity: -1, group: "server", flags: "loading stale", summary: "Describes all commands", run: (*conn).command, subs: []*command{
			{name: "count", arity: 2, flags: "loading stale", summary: "How many commands there are", run: func(c *conn, _ [][]byte) error { c.integer(int64(len(commands))); return nil }},
			{name: "docs", arguments: "[name ...]", arity: -2, flags: "loading stale", summary: "What commands do", run: (*conn).commandDocs},
			{name: "getkeys", arguments: "command ...", arity: -3, flags: "loading stale", summary: "The keys among a command's arguments", run: (*conn).commandGetKeys},
			{name: "info", arguments: "[name ...]", arity: -2, flags: "loading stale", summary: "Describes commands", run: (*conn).commandInfo},
			{name: "list", arguments: "[FILTERBY MODULE|ACLCAT|PATTERN value]", arity: -2, flags: "loading stale", summary: "Names of commands", run: (*conn).commandList},
		}},
		{name: "config", group: "server", subs: []*command{
			{name: "get", arguments: "pattern ...", arity: -3, flags: "noscript loading stale", summary: "What clients of Redis ask for, such as maxclients and save", run: (*conn).configGet},
		}},
		{name: "dbsize", arity: 1, group: "server", flags: ro, summary: "Number of rows of all tables that the user may read", run: (*conn).dbsize},
		{name: "discard", arity: 1, group: "transactions", flags: "noscript loading stale fast", summary: "Forgets what MULTI has queued", run: (*conn).discard},
		{name: "echo", arguments: "text", arity: 2, group: "connection", flags: "loading stale fast", summary: "Returns its argument", run: func(c *conn, args [][]byte) error { c.bulk(args[0]); return nil }},
		{name: "exec", arity: 1, group: "transactions", flags: "noscript loading stale", summary: "Runs what MULTI has queued; other clients' changes may come in between", run: (*conn).exec},
		{name: "exists", arguments: "key [key ...]", arity: -2, group: "generic", flags: ro, keys: 1, last: -1, summary: "How many of the rows exist; a malformed key is none", run: (*conn).exists},
		{name: "get", arguments: "key", arity: 2, group: "string", flags: ro, keys: 1, last: 1, summary: "The row as its source stores it; null if the table has no such row", run: (*conn).get},
		{name: "getrange", arguments: "key start end", arity: 4, group: "string", flags: "readonly", keys: 1, last: 1, summary: "Bytes of a row, such as its elements; negative positions count from the end", run: (*conn).getRange},
		{name: "hello", arguments: "[2|3 [AUTH user password] [SETNAME name]]", arity: -1, right: anybody, group: "connection", flags: free, summary: "Chooses the protocol", run: (*conn).hello},
		{name: "hget", arguments: "key field", arity: 3, group: "hash", flags: ro, keys: 1, last: 1, summary: "WRONGTYPE: rows are strings", run: (*conn).wrongType},
		{name: "hgetall", arguments: "key", arity: 2, group: "hash", flags: "readonly", keys: 1, last: 1, summary: "WRONGTYPE: rows are strings", run: (*conn).wrongType},
		{name: "hmget", arguments: "key field [field ...]", arity: -3, group: "hash", flags: ro, keys: 1, last: 1, summary: "WRONGTYPE: rows are strings; GETRANGE reads elements", run: (*conn).wrongType},
		{name: "info", arguments: "[section ...]", arity: -1, group: "server", flags: "loading stale", summary: "Statistics, as text; hits and misses are rows", run: (*conn).info},
		{name: "keys", arguments: "pattern", arity: 2, group: "generic", flags: "readonly", summary: "Keys that match a glob pattern; an error where it would look at over a million", run: (*conn).keys},
		{name: "latency", group: "server", subs: []*command{
			{name: "histogram", arguments: "[command ...]", arity: -2, flags: "noscript loading stale", summary: "Times of commands, in powers of two of microseconds", run: (*conn).latencyHistogram},
			{name: "latest", arity: 2, flags: "noscript loading stale", summary: "Empty: no events are watched", run: func(c *conn, _ [][]byte) error { c.array(0); return nil }},
		}},
		{name: "mget", arguments: "key [key ...]", arity: -2, group: "string", flags: ro, keys: 1, last: -1, summary: "Rows; null for a row that does not exist and for a malformed key", run: (*conn).mget},
		{name: "module", group: "server", subs: []*command{
			{name: "list", arity: 2, flags: "noscript", summary: "Empty", run: func(c *conn, _ [][]byte) error { c.array(0); return nil }},
		}},
		{name: "multi", arity: 1, group: "transactions", flags: "noscript loading stale fast", summary: "Queues the following commands for EXEC", run: (*conn).begin},
		{name: "object", group: "generic", subs: []*command{
			{name: "encoding", arguments: "key", arity: 3, flags: "readonly", keys: 2, last: 2, summary: "raw", run: func(c *conn, args [][]byte) error { return c.ofRow(args, func() { c.text("raw") }) }},
			{name: "freq", arguments: "key", arity: 3, flags: "readonly", keys: 2, last: 2, summary: "An error, as in Redis without an LFU policy; TC.EXPLAIN tells of accesses", run: func(c *conn, args [][]byte) error {
				return failure("ERR An LFU maxmemory policy is not selected, access frequency not tracked. TC.EXPLAIN tells what is known of a row")
			}},
			{name: "idletime", arguments: "key", arity: 3, flags: "readonly", keys: 2, last: 2, summary: "0", run: func(c *conn, args [][]byte) error { return c.ofRow(args, func() { c.integer(0) }) }},
			{name: "refcount", arguments: "key", arity: 3, flags: "readonly", keys: 2, last: 2, summary: "1", run: func(c *conn, args [][]byte) error { return c.ofRow(args, func() { c.integer(1) }) }},
		}},
		{name: "ping", arguments: "[text]", arity: -1, group: "connection", flags: fast, summary: "Answers", run: (*conn).ping},
		{name: "pttl", arguments: "key", arity: 2, group: "generic", flags: ro, keys: 1, last: 1, summary: "-1: rows do not expire; -2 if there is no such row", run: (*conn).ttl},
		{name: "quit", arity: -1, right: anybody, group: "connection", flags: free, summary: "Ends the connection", run: func(c *conn, _ [][]byte) error { c.ok(); c.quit = true; return nil }},
		{name: "readonly", arity: 1, group: "connection", flags: "loading stale fast", summary: "Accepted; changes nothing", run: nothing},
		{name: "readwrite", arity: 1, group: "connection", flags: "loading stale fast", summary: "Accepted; changes nothing", run: nothing},
		{name: "reset", arity: 1, right: anybody, group: "connection", flags: free, summary: "Makes the connection as it began", run: (*conn).reset},
		{name: "role", arity: 1, group: "server", flags: "noscript loading stale fast", summary: "master, without replicas", run: (*conn).roleCommand},
		{name: "scan", arguments: "cursor [MATCH pattern] [COUNT n] [TYPE type]", arity: -2, group: "generic", flags: "readonly", summary: "Keys of all tables that the user may read, some at a time", run: (*conn).scan},
		{name: "select", arguments: "0", arity: 2, group: "connection", flags: "loading stale fast", summary: "There is one database, 0", run: (*conn).selectDB},
		{name: "slowlog", group: "server", subs: []*command{
			{name: "get", arguments: "[count]", arity: -2, flags: "admin loading stale", summary: "Commands that took 10 ms or longer, the last ones first; those of the same user, for a user with admin all", run: (*conn).slowlogGet},
			{name: "len", arity: 2, flags: "admin loading stale", summary: "How many are kept, at most 128", run: func(c *conn, _ [][]byte) error { c.integer(int64(len(c.server.slow.entries()))); return nil }},
			{name: "reset", arity: 2, right: ofAdmin, flags: "admin loading stale", summary: "Forgets them", run: func(c *conn, _ [][]byte) error { c.server.slow.reset(); c.ok(); return nil }},
		}},
		{name: "strlen", arguments: "key", arity: 2, group: "string", flags: ro, keys: 1, last: 1, summary: "Bytes of the row; 0 if there is no such row", run: (*conn).strlen},
		{name: "tc.explain", arguments: "table row [row ...]", arity: -3, group: "tensorcache", flags: "readonly", summary: "Where rows are, or why they are not cached: JSON", run: (*conn).explain},
		{name: "tc.gather", arguments: "table row [row ...]", arity: -3, group: "tensorcache", flags: "readonly", summary: "The rows back to back in one bulk string, at most 512 MiB", run: (*conn).gatherRows},
		{name: "tc.set", arguments: "table row value [row value ...]", arity: -4, group: "tensorcache", flags: "write denyoom", summary: "Replaces rows, or appends some behind the last row, up to the table's capacity and without a gap", run: (*conn).set},
		{name: "tc.stats", arity: 1, group: "tensorcache", flags: "readonly", summary: "Statistics: JSON", run: (*conn).stats},
		{name: "time", arity: 1, group: "server", flags: "loading stale fast", summary: "Seconds since 1970, and microseconds", run: (*conn).time},
		{name: "ttl", arguments: "key", arity: 2, group: "generic", flags: ro, keys: 1, last: 1, summary: "-1: rows do not expire; -2 if there is no such row", run: (*conn).ttl},
		{name: "type", arguments: "key", arity: 2, group: "generic", flags: ro, keys: 1, last: 1, summary: "string; none if there is no such row", run: (*conn).typeOf},
		{name: "unwatch", arity: 1, group: "transactions", flags: "noscript loading stale fast", summary: "Forgets WATCH", run: (*conn).unwatch},
		{name: "watch", arguments: "key [key ...]", arity: -2, group: "transactions", flags: "noscript loading stale fast", keys: 1, last: -1, summary: "EXEC does nothing if one of the rows has other bytes by then", run: (*conn).watch},
	}
	for _, cmd := range commands {
		cmd.full = cmd.name
		if cmd.right == anybody && !strings.Contains(cmd.flags, "no_auth") {
			cmd.right = loggedIn
		}
		if len(cmd.subs) > 0 && cmd.run == nil {
			cmd.arity = -2
		}
		if len(cmd.subs) > 0 {
			of := cmd
			cmd.subs = append(cmd.subs, &command{name: "help", arity: 2, flags: "loading stale", summary: "Lists the subcommands", run: func(c *conn, _ [][]byte) error { c.help(of); return nil }})
		}
		for _, sub := range append([]*command{cmd}, cmd.subs...) {
			if sub != cmd {
				sub.full, sub.group = cmd.name+"|"+sub.name, cmd.group
				sub.right = max(sub.right, loggedIn)
			}
			sub.id = len(allNames)
			allNames = append(allNames, sub.full)
			byName[sub.full] = sub
		}
	}
	cmdGet = byName["get"]
}

// instead says what to use in place of commands of Redis that this server does not have.
var instead = map[string]string{
	"set": "rows are changed by TC.SET table row value", "mset": "rows are changed by TC.SET table row value ...", "setrange": "rows are changed whole, by TC.SET",
	"del": "rows cannot be deleted", "unlink": "rows cannot be deleted", "expire": "rows do not expire", "flushall": "rows cannot be deleted", "flushdb": "rows cannot be deleted",
	"hset": "rows are changed by TC.SET table row value", "randomkey": "SCAN lists keys", "monitor": "SLOWLOG and TC.STATS tell what the server does",
}

// lower returns a name in lower case, in b.
func lower(b *[24]byte, name []byte) []byte {
	if len(name) > len(b) {
		return nil
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b[i] = c
	}
	return b[:len(name)]
}

// find returns the command, or the subcommand, that arguments begin with, and how many of them are its name.
func find(args [][]byte) (cmd *command, names int, err error) {
	var b [24]byte
	cmd = byName[string(lower(&b, args[0]))]
	if cmd == nil || cmd.full != cmd.name { // "client|list" is no command's name
		hint := instead[strings.ToLower(cut(args[0]))]
		if hint != "" {
			hint = ": " + hint
		}
		return nil, 0, fmt.Errorf("ERR unknown command '%s'%s", cut(args[0]), hint)
	}
	if len(cmd.subs) == 0 || len(args) == 1 {
		return cmd, 1, nil
	}
	name := string(lower(&b, args[1]))
	if i := slices.IndexFunc(cmd.subs, func(sub *command) bool { return sub.name == name }); i >= 0 {
		return cmd.subs[i], 2, nil
	}
	if cmd.name == "config" {
		return nil, 0, fmt.Errorf("ERR unknown subcommand '%s'. Parameters are flags of tensorcached; CONFIG GET reads them", cut(args[1]))
	}
	return nil, 0, failure(fmt.Sprintf("ERR unknown subcommand '%s'. Try %s HELP.", cut(args[1]), strings.ToUpper(cmd.name)))
}

// checked returns an error unless a command has its number of arguments.
func (cmd *command) checked(args [][]byte) error {
	if cmd.arity > 0 && len(args) != cmd.arity || len(args) < -cmd.arity {
		return fmt.Errorf("ERR wrong number of arguments for '%s' command", cmd.full)
	}
	return nil
}

// categories returns Redis's names for kinds of commands that it belongs to.
func (cmd *command) categories() (all []string) {
	flags := strings.Fields(cmd.flags)
	for _, of := range []struct{ flag, category string }{{"readonly", "read"}, {"write", "write"}, {"admin", "admin"}, {"admin", "dangerous"}, {"fast", "fast"}} {
		if slices.Contains(flags, of.flag) {
			all = append(all, of.category)
		}
	}
	if !slices.Contains(flags, "fast") {
		all = append(all, "slow")
	}
	switch cmd.group {
	case "generic":
		all = append(all, "keyspace")
	case "transactions":
		all = append(all, "transaction")
	case "connection", "string", "hash", "tensorcache":
		all = append(all, cmd.group)
	}
	return all
}

// command is COMMAND.
func (c *conn) command([][]byte) error { return c.commandInfo(nil) }

// named returns the commands of some names, nil for a name of none; without names all commands.
func named(names [][]byte) (all []*command) {
	for _, name := range names {
		all = append(all, byName[strings.ToLower(cut(name))])
	}
	if len(names) == 0 {
		return commands
	}
	return all
}

func (c *conn) commandInfo(names [][]byte) error {
	all := named(names)
	c.array(len(all))
	for _, cmd := range all {
		if cmd == nil {
			c.nullArray()
		} else {
			c.describe(cmd)
		}
		if !c.goesOn() {
			break
		}
	}
	return nil
}

// goesOn sends replies that have become long. It is false if the connection ends.
func (c *conn) goesOn() bool {
	if len(c.out) >= flushBytes {
		c.flush()
	}
	return c.failed == nil
}

// describe appends a command as COMMAND INFO lists it since Redis 7: ten members.
func (c *conn) describe(cmd *command) {
	flags, step := strings.Fields(cmd.flags), min(cmd.keys, 1)
	c.array(10)
	c.text(cmd.full)
	c.integer(int64(cmd.arity))
	c.words(flags)
	c.integer(int64(cmd.keys))
	c.integer(int64(cmd.last))
	c.integer(int64(step))
	categories := cmd.categories()
	for i := range categories {
		categories[i] = "@" + categories[i]
	}
	c.words(categories)
	c.setOf(0) // tips
	c.setOf(step)
	if step == 1 {
		last := int64(cmd.last)
		if last > 0 {
			last -= int64(cmd.keys) // it is counted from the first key
		}
		c.dict(3)
		c.text("flags")
		c.words([]string{"RO", "access"})
		c.text("begin_search")
		c.dict(2)
		c.text("type")
		c.text("index")
		c.text("spec")
		c.dict(1)
		c.text("index")
		c.integer(int64(cmd.keys))
		c.text("find_keys")
		c.dict(2)
		c.text("type")
		c.text("range")
		c.text("spec")
		c.dict(3)
		c.text("lastkey")
		c.integer(last)
		c.text("keystep")
		c.integer(1)
		c.text("limit")
		c.integer(0)
	}
	c.setOf(len(cmd.subs))
	for _, sub := range cmd.subs {
		c.describe(sub)
	}
}

// words appends a set of simple strings.
func (c *conn) words(all []string) {
	c.setOf(len(all))
	for _, word := range all {
		c.simple(word)
	}
}

func (c *conn) commandDocs(names [][]byte) error {
	all := slices.DeleteFunc(slices.Clone(named(names)), func(cmd *command) bool { return cmd == nil })
	c.dict(len(all))
	for _, cmd := range all {
		if c.docs(cmd); !c.goesOn() {
			break
		}
	}
	return nil
}

func (c *conn) docs(cmd *command) {
	pairs := [][2]string{{"summary", cmd.summary}, {"since", "1.0.0"}, {"group", cmd.group}}
	if cmd.arguments != "" { // as text: Redis's trees of arguments are for editors of commands
		pairs = append(pairs, [2]string{"syntax", strings.ToUpper(strings.ReplaceAll(cmd.full, "|", " ")) + " " + cmd.arguments})
	}
	c.text(cmd.full)
	c.dict(len(pairs) + min(len(cmd.subs), 1))
	for _, p := range pairs {
		c.text(p[0])
		c.text(p[1])
	}
	if len(cmd.subs) > 0 {
		c.text("subcommands")
		c.dict(len(cmd.subs))
		for _, sub := range cmd.subs {
			c.docs(sub)
		}
	}
}

// commandList is COMMAND LIST. As in Redis, it has subcommands, too.
func (c *conn) commandList(args [][]byte) error {
	keep := func(*command) bool { return true }
	if len(args) > 0 {
		if len(args) != 3 || !strings.EqualFold(cut(args[0]), "filterby") {
			return errSyntax
		}
		switch strings.ToUpper(cut(args[1])) {
		case "MODULE":
			keep = func(*command) bool { return false }
		case "ACLCAT":
			category := strings.ToLower(cut(args[2]))
			keep = func(cmd *command) bool { return slices.Contains(cmd.categories(), category) }
		case "PATTERN":
			pattern, err := globOf(bytes.ToLower(args[2]))
			if err != nil {
				return err
			}
			keep = func(cmd *command) bool { return pattern.matches(cmd.full) }
		default:
			return errSyntax
		}
	}
	var found []string
	for _, name := range allNames {
		if keep(byName[name]) {
			found = append(found, name)
		}
	}
	c.array(len(found))
	for _, name := range found {
		c.text(name)
	}
	return nil
}

func (c *conn) commandGetKeys(args [][]byte) error {
	cmd, _, err := find(args)
	if err == nil {
		err = cmd.checked(args)
	}
	if err != nil {
		return failure("ERR Invalid command specified")
	}
	if cmd.keys == 0 {
		return failure("ERR The command has no key arguments")
	}
	keys := args[cmd.keys:]
	if cmd.last > 0 {
		keys = args[cmd.keys : cmd.last+1]
	}
	c.array(len(keys))
	for _, key := range keys {
		c.bulk(key)
	}
	return nil
}

// help lists the subcommands of a command.
func (c *conn) help(cmd *command) {
	c.array(1 + 2*len(cmd.subs))
	c.simple(strings.ToUpper(cmd.name) + " <subcommand> [<arg> ...]. Subcommands are:")
	for _, sub := range cmd.subs {
		c.simple(strings.TrimSpace(strings.ToUpper(sub.name) + " " + sub.arguments))
		c.simple("    " + sub.summary)
	}
}

// aclCat is ACL CAT.
func (c *conn) aclCat(args [][]byte) error {
	in := map[string][]string{}
	var walk func(of []*command)
	walk = func(of []*command) {
		for _, cmd := range of {
			for _, category := range cmd.categories() {
				in[category] = append(in[category], cmd.full)
			}
			walk(cmd.subs)
		}
	}
	walk(commands)
	var names []string
	switch len(args) {
	case 0:
		for category := range in {
			names = append(names, category)
		}
	case 1:
		if names = in[strings.ToLower(cut(args[0]))]; names == nil {
			return fmt.Errorf("ERR Unknown category '%s'", cut(args[0]))
		}
	default:
		return errSyntax
	}
	slices.Sort(names)
	c.array(len(names))
	for _, name := range names {
		c.text(name)
	}
	return nil
}
