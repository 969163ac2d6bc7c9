// Package abi holds the constants and structures that Go code and CUDA kernels share. abi.go is generated from
// kernels/abi.h, which the kernels include; it checks the size of each structure.
package abi
