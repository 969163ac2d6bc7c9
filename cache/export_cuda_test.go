//go:build cuda && linux

package cache

import "github.com/tensorcache/tensorcache/device/cuda"

// Functions returns the number of kernels that the cache's first GPU has loaded.
func Functions(c *Cache) int { return c.set.Devices[0].Device.(*cuda.Device).Functions() }
