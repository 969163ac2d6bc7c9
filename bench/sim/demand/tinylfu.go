package demand

import "github.com/tensorcache/tensorcache/internal/tinylfu"

var _ = register(Policy{Name: "tinylfu", New: func(c Config) cache {
	fit := float64(c.Capacity)
	if c.size != nil {
		fit /= max(1, float64(c.trace.WorkingSet())/float64(c.rows))
	}
	return &tinyLFU{tinylfu.New(c.Capacity, int64(min(fit, float64(c.rows))), c.Seed, nil), c.sizes}
}})

// tinyLFU is ristretto's policy.
type tinyLFU struct {
	held *tinylfu.Cache
	sizes
}

func (c *tinyLFU) access(row uint32) bool { return c.held.Access(uint64(row), c.bytes(row)) }
func (c *tinyLFU) remove(row uint32)      { c.held.Remove(uint64(row)) }
