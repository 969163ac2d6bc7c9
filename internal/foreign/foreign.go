// Package foreign reads memory that the program does not own, such as an array that another program handed over. It may be that of a mapped file, whose pages go away when the file is made
// shorter, or cannot be read when its drive, or the network to it, fails. The system then sends a signal, which ends a Go program unless the goroutine has asked for a panic.
package foreign

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// ErrFault is wrapped by errors of Read.
var ErrFault = errors.New("memory cannot be read: if it is of a mapped file, the file has become shorter, or its drive has failed")

// Read calls f, which reads memory, and returns an error if some of that cannot be read. f runs on the caller's goroutine and must take no lock that it does not give back when it
// panics. Goroutines that f starts, and C code that it calls, are not guarded.
func Read(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		fault, ok := p.(interface { // as package runtime/debug documents
			runtime.Error
			Addr() uintptr
		})
		if !ok {
			panic(p)
		}
		err = fmt.Errorf("address %#x: %w", fault.Addr(), ErrFault)
	}()
	f()
	return nil
}
