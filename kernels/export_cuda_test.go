//go:build cuda && linux

package kernels

// LimitShared makes every GPU look as if its blocks had at most so much shared memory, until restore is called.
func LimitShared(bytes int) (restore func()) {
	sharedLimit = bytes
	return func() { sharedLimit = 0 }
}
