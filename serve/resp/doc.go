// Package resp serves the rows of a cache to clients of Redis: the wire protocol RESP, versions 2 and 3, over TCP or TLS.
//
// A key is "table:row": the row number follows the last colon, so that names of tables may hold colons. The table may also be named by its number.
// Values are rows as the table's source stores them.
//
//	GET key                       the row, or null if the table has no such row
//	MGET key key …                an array of them
//	EXISTS key key …              how many of the rows exist
//	DBSIZE                        how many rows all tables have
//	INFO [section]                statistics, as text
//	TC.GATHER table row row …     the rows back to back, as one bulk string
//	TC.SET table row value …      replaces rows, or appends some behind the last one without a gap; admin only
//	TC.EXPLAIN table row row …    where the rows are, or why they are not cached: JSON
//	TC.STATS                      statistics: JSON
//	HELLO, AUTH, CLIENT, COMMAND, CONFIG GET, ECHO, PING, QUIT, RESET, SELECT 0
//
// A key that names no table is an error, not a null: it is a mistake of the client's, which a null would hide.
//
// The keys of an MGET, and GETs that a client has pipelined, become one Gather for each table.
//
// There are two users: default, who reads, and admin. Without a password for default, connections begin as default. Without one for admin nobody
// is admin.
//
// The protocol is read by this package itself ([reader]): it is some hundred lines, and of the Go libraries for servers the one that is kept,
// tidwall/redcon 1.6.4, speaks RESP2 only, keeps whatever a client that has not authenticated sends, however long, and ends the process by
// a panic when a bulk string of 2^63 - 1 bytes is announced.
//
// A Server is safe for concurrent use.
package resp
