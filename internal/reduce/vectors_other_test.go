//go:build !amd64

package reduce

func setVectors(_ bool, do func()) { do() }
