//go:build long

package demand

import "testing"

// The longest trace takes as long as the others together.
func TestLong_ReferenceMissRatios(t *testing.T) { referenceMissRatios(t, 3, "oltp") }
