//go:build cuda && linux

package kernels

// FindWithAll makes Find look up and decode in one launch whatever the codec, until restore is called.
func FindWithAll() (restore func()) {
	findWithAll = true
	return func() { findWithAll = false }
}

// LimitShared makes every GPU look as if its blocks had at most so much shared memory, until restore is called.
func LimitShared(bytes int) (restore func()) {
	sharedLimit = bytes
	return func() { sharedLimit = 0 }
}
