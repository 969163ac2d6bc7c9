//go:build cuda && linux

package kernels

// LimitShared makes every GPU look as if its blocks had at most so much shared memory, until restore is called.
func LimitShared(bytes int) (restore func()) {
	sharedLimit = bytes
	return func() { sharedLimit = 0 }
}

// LimitPooledBlocks has kernels of pooled batches have at most so many blocks, so that tiles have many rows, until restore is called. 0 is no limit.
func LimitPooledBlocks(n int) (restore func()) {
	mostPooledBlocks = n
	return func() { mostPooledBlocks = 0 }
}
