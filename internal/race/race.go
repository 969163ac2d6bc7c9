// Package race says whether the race detector is on, for tests that it makes too long or that it disturbs.
package race

// Some returns every fifth of the cases, the first among them, where the race detector is on, and else all: for cases that have the
// same goroutines share the same memory, such as rows of other lengths.
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
