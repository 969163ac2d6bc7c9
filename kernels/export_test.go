package kernels

// LimitShared makes every GPU look as if its blocks had at most so much shared memory, until restore is called.
func LimitShared(bytes int) (restore func()) {
	sharedLimit = bytes
	return func() { sharedLimit = 0 }
}

// LimitLaunch has launches of kernels that read rows take at most so many blocks, of at most so many warps (0: as many as otherwise), until restore
// is called. Tests call it so that a tile decodes dozens of rows where the batch has hundreds.
func LimitLaunch(blocks, warps int) (restore func()) {
	blockLimit, warpLimit = blocks, warps
	return func() { blockLimit, warpLimit = 0, 0 }
}
