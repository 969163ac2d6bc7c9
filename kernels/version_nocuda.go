//go:build !(cuda && linux)

package kernels

func version() string { return "host" }

func hasMachineCode(string) bool { return false }
