// Package resp serves the rows of a cache to clients of Redis: the wire protocol RESP, versions 2 and 3, over TCP or TLS.
//
// A key is "table:row": the row number follows the last colon, so that names of tables may hold colons. The table may also be named by its number.
// Values are rows as the table's source stores them. The commands are in one table (table.go), which COMMAND, HELP, ACL CAT, counters, errors and
// docs/resp.md follow. A key that names no table is an error, not a null: it is a mistake of the client's, which a null would hide. Only commands of several
// keys take it, and malformed ones, for rows that do not exist.
//
// A connection has a goroutine, which reads commands, and replies before it waits for the client. The keys of an MGET, and GETs that a client has pipelined,
// become one Gather for each table. Rows of one table are gathered straight to where the replies are.
//
// Users have rights by table; see [Users]. Without a password for user default, connections begin as default.
//
// The protocol is read by this package itself ([reader]): it is some hundred lines, and of the Go libraries for servers the one that is kept,
// tidwall/redcon 1.6.4, speaks RESP2 only, keeps whatever a client that has not authenticated sends, however long, and ends the process by
// a panic when a bulk string of 2^63 - 1 bytes is announced.
//
// A Server is safe for concurrent use.
package resp
