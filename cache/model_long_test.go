//go:build long

package cache_test

// modelOperations are those of all cases together.
const modelOperations = 10_000_000
