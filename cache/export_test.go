package cache

// ServeApart has every batch served by a launch a stage until the function that it returns is called. No Gather may be under
// way.
func ServeApart() (undo func()) {
	serveApart = true
	return func() { serveApart = false }
}
