package kernels

// FindWithAll makes Find look up and decode in one launch whatever the codec, until restore is called.
func FindWithAll() (restore func()) {
	findWithAll = true
	return func() { findWithAll = false }
}
