//go:build !invariants

package change

// invariants says whether the writer checks itself: see invariants.go.
const invariants = false
