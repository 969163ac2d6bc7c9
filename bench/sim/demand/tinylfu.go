package demand

import "github.com/dgraph-io/ristretto/v2"

var _ = register(Policy{Name: "tinylfu", New: func(c Config) cache {
	mean := 1.0
	if c.size != nil {
		mean = max(1, float64(c.trace.WorkingSet())/float64(c.rows))
	}
	l, err := ristretto.NewCache(&ristretto.Config[uint64, struct{}]{
		NumCounters: max(64, int64(10*float64(c.Capacity)/mean)), // what ristretto advises
		MaxCost:     c.Capacity, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nothing{}
	}
	return &tinyLFU{l, c.sizes}
}})

// tinyLFU is ristretto, waited for after each Set: without that it drops most of what a simulation gives it. It is not
// reproducible: ristretto seeds its sketch at random.
type tinyLFU struct {
	held *ristretto.Cache[uint64, struct{}]
	sizes
}

func (c *tinyLFU) access(row uint32) bool {
	if _, hit := c.held.Get(uint64(row)); hit {
		return true
	}
	c.held.Set(uint64(row), struct{}{}, c.bytes(row))
	c.held.Wait()
	return false
}

func (c *tinyLFU) remove(row uint32) { c.held.Del(uint64(row)) }
func (c *tinyLFU) close()            { c.held.Close() }
