// Package faults collects what is wrong with options, so that one error reports all of it.
package faults

import (
	"errors"
	"fmt"
)

// List is the faults found so far. The zero value is ready for use.
type List struct {
	// Prefix precedes the text of every fault that If and Addf add.
	Prefix string
	errs   []error
}

// If adds a fault if something is wrong.
func (l *List) If(wrong bool, format string, args ...any) {
	if wrong {
		l.Addf(format, args...)
	}
}

// Addf adds a fault.
func (l *List) Addf(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf(l.Prefix+format, args...))
}

// Add adds an error as it is, unless it is nil.
func (l *List) Add(err error) {
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

// Err returns all faults, joined, or nil.
func (l *List) Err() error { return errors.Join(l.errs...) }
