//go:build invariants

package cache

// poison overwrites a freed slot: a batch that still reads it returns wrong rows.
func poison(s *side, freed slot) error {
	if err := s.stream.Fill(s.owner.slab.Slice(freed.offset, freed.offset+int64(freed.bytes)), 0xdb); err != nil {
		return err
	}
	return s.stream.Synchronize()
}
