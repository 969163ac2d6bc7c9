//go:build cuda && linux

package cache_test

import (
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestGPU_ResidentUpdatesEncoded: rows of long Updates, which a GPU encodes, read as a plain array's.
func TestGPU_ResidentUpdatesEncoded(t *testing.T) {
	gputest.Require(t)
	for _, codec := range []cache.Codec{"ibp4", "rank", "sparse"}[:gputest.Few(3, 1)] {
		c, now := openEncoded(t, codec, 1, cache.BackendCUDA)
		updatesEncoded(t, c, now)
	}
}
