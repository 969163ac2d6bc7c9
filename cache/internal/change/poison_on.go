//go:build invariants

package change

// poison overwrites a freed slot: a batch that still reads it returns wrong rows.
func poison(m *mirror, freed slot) error {
	if err := m.stream.Fill(m.owner.Slab.Slice(freed.offset, freed.offset+int64(freed.bytes)), 0xdb); err != nil {
		return err
	}
	return m.stream.Synchronize()
}
