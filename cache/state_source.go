package cache

import "github.com/tensorcache/tensorcache/internal/sharing"

func init() {
	sharing.Source = func(t any) string { return t.(*Table).stamp }
	sharing.SetSource = func(c any, table int, source string) error { return c.(*Cache).setSource(table, source) }
}

func (c *Cache) setSource(table int, source string) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	s := c.state
	if s == nil {
		return nil
	}
	set := func(source string) (was string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, t := range s.tables {
			if t.Number == table {
				was, t.Source = t.Source, source
			}
		}
		return was
	}
	return s.folder.Commit(func() func() {
		was := set(source)
		return func() { set(was) }
	})
}
