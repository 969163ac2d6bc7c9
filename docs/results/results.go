// Package results holds the committed measurements, for programs that predict from them.
package results

import _ "embed"

// GPUBench is docs/results/gpu-bench.json, what `lab bench` measured on the reference GPU.
//
//go:embed gpu-bench.json
var GPUBench []byte
