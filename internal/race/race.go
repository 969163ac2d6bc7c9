// Package race tells whether the race detector is on.
package race

// Some returns every fifth case, starting with the first, if the race detector is on, and else all cases. It is for cases
// that share memory between goroutines in the same way, such as different row lengths.
func Some[T any](cases []T) []T {
	if !Enabled {
		return cases
	}
	var some []T
	for i := 0; i < len(cases); i += 5 {
		some = append(some, cases[i])
	}
	return some
}
