//go:build invariants

package change

const invariants = true
