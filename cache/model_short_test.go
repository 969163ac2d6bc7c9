//go:build !long

package cache_test

// modelOperations are those of all cases together.
const modelOperations = 1_000_000
