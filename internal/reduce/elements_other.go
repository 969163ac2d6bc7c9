//go:build !amd64

package reduce

import "github.com/tensorcache/tensorcache/dtype"

func loadVectors([]float32, []byte, dtype.Type) int                 { return 0 }
func addVectors([]float32, []byte, dtype.Type) int                  { return 0 }
func addWeightedVectors([]float32, []byte, float32, dtype.Type) int { return 0 }
func maxVectors([]float32, []byte, dtype.Type) int                  { return 0 }
func storeVectors([]byte, []float32, dtype.Type) int                { return 0 }

// Prefetch asks for memory that is soon read. It does nothing on this architecture.
func Prefetch([]byte) {}
