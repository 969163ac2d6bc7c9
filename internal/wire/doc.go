// Package wire is the protocol between the owner of a shared cache and its clients, on one Unix stream socket.
//
// A frame is a header of 16 bytes, a JSON object and a payload. Numbers are little-endian.
//
//	0        4              8             12            16
//	+--------+--------------+-------------+-------------+-----------+-------------+
//	| "TCS1" | descriptors  | JSON bytes  | payload     | JSON ...  | payload ... |
//	+--------+--------------+-------------+-------------+-----------+-------------+
//
// File descriptors travel beside the header (SCM_RIGHTS), at most [MaxFiles] a frame. The JSON object is a [Message]. A request has an ID and a
// method; its answer has the same ID and no method. A notice has a method and no ID, and is not answered. Answers may come in any order.
//
// The first request of a client is "hello" with the versions that it speaks. An owner that speaks none of them answers with an error, which names the versions of both, and closes the connection.
//
// Rows that are read never travel through the socket: clients read shared memory. Rows of an update do, as the payload of the request.
package wire
