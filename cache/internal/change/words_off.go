//go:build !invariants

package change

// checkWords does nothing without the invariants tag.
func (w *Writer) checkWords() {}
