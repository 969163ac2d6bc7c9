//go:build cgo

// Command capi is the C library libtensorcache.so: "make capi" builds it with -buildmode=c-shared. tensorcache.h documents it.
//
// A call takes two steps. The functions tc_* in C refuse to run in a child of fork, where Go's threads are missing, and null pointers (calls.c, which gen makes of
// tensorcache.h). Then they call the functions tcgo_* that the Go files export, which copy structures of any version, check arguments, call package cache, and turn errors
// and panics into a status and a text. The linker exports only tc_* (exports.map).
//
// Handles are numbers (handle.go), so that a wrong one is an error. Go gives the text of an error to the C side, which keeps it for the caller's
// thread.
package main

//go:generate go run ./gen

func main() {}
