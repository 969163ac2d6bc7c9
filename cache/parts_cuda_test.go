//go:build cuda && linux

package cache_test

import (
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

func TestGPU_Parts(t *testing.T) {
	gputest.Require(t)
	checkParts(t, cache.BackendCUDA)
}
