// Package attempt is for measuring code, in which nearly every line can fail and each failure ends what is being measured: Must and Get panic, Try, further up,
// returns the error. Library code returns errors.
package attempt

// failure carries an error from Must to Try.
type failure struct{ error }

// Must ends what Try runs if err is not nil.
func Must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get returns v. If err is not nil, it ends what Try runs.
func Get[T any](v T, err error) T {
	Must(err)
	return v
}

// Try runs f and returns the error that Must was called with. It passes other panics on.
func Try(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	f()
	return nil
}
