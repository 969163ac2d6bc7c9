//go:build !(cuda && linux)

package kernels

func version() string { return "host" }
