package reduce

// setVectors runs do with vectors on or off.
func setVectors(on bool, do func()) {
	before := vectors
	vectors = on && before
	defer func() { vectors = before }()
	do()
}
