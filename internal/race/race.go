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

// SkipSequential skips, under the race detector, a test that does one thing after another and takes long there: what it runs is
// covered there by tests with several goroutines.
func SkipSequential(t interface {
	Helper()
	Skip(...any)
}) {
	t.Helper()
	if Enabled {
		t.Skip("sequential: the race detector has other tests of this")
	}
}
