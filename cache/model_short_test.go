//go:build !long

package cache_test

// Operations of all cases together, on the host and on a GPU.
const (
	modelOperations    = 1_000_000
	gpuModelOperations = 60_000
)
