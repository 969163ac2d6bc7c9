package cache

import "github.com/tensorcache/tensorcache/hashmap"

// Sample is one sampled access, passed to Options.Capture.
type Sample struct {
	Table int
	Row   int64
	// Missed says that the row was not cached when the sample was read, about 20 ms after the access.
	Missed bool
	// ByAccess and ByKey say whether Refresh.Accesses or Refresh.Keys selected the access. Both may have.
	ByAccess, ByKey bool
}

// capture collects the samples of one device for Options.Capture. The learner calls it from one goroutine at a time.
type capture struct {
	cache *Cache
	call  func([]Sample, int64)
	taken []Sample
}

func (c *capture) Sample(key uint64, byAccess, byKey bool) {
	table, row := hashmap.SplitKey(key)
	missed := !c.cache.writer.Find(key).Valid()
	c.taken = append(c.taken, Sample{Table: table, Row: row, Missed: missed, ByAccess: byAccess, ByKey: byKey})
}

func (c *capture) Drained(lost int64) {
	c.call(c.taken, lost)
	c.taken = c.taken[:0]
}
