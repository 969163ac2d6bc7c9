package cache

// Source tells the files that the table is read from from others of the same names, by paths, lengths and times of the last change; "": not known. A cache with Options.State
// takes over the table of the process before if both have the same.
func (t *Table) Source() string { return t.stamp }

// SetSource says that the rows of a table are now those of another Source, for the next owner of Options.State. One that no table has, such as "dropped", has the table loaded
// anew. It does nothing for tables that are not kept, and is safe for concurrent use. After Close it returns ErrClosed.
func (c *Cache) SetSource(table int, source string) error {
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
