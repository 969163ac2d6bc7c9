// Package serve makes a cache available to other processes of the machine through a Unix socket.
//
// The process that has the cache is the owner. It calls [Listen]. Other processes read the cache's memory themselves by [cache.Attach]; no row
// that is read passes through the socket. Programs that only ask or command, such as `tensorcached status`, use [Dial].
//
// Who may connect: processes of the owner's user. The socket has mode 0600, and the owner also asks the system for the user of each process that
// connects. Such a process shares the cache's memory, so it is trusted as much as the owner.
//
// All functions and methods are safe for concurrent use.
package serve
