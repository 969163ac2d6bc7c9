package driver

import "fmt"

// Result is a CUresult. The zero value is success; every other is an error, for errors.Is.
type Result int32

// Results that callers handle in their own way.
const (
	OutOfMemory Result = 2
	notReady    Result = 600
)

// Name returns the driver API's name of the result, such as CUDA_ERROR_OUT_OF_MEMORY.
func (r Result) Name() string {
	if d, ok := results[r]; ok {
		return d.name
	}
	if name, _ := driverResult(r); name != "" {
		return name
	}
	return fmt.Sprintf("CUresult %d", int32(r))
}

// Text returns what the result means, in a few words; it may be empty.
func (r Result) Text() string {
	if d, ok := results[r]; ok {
		return d.text
	}
	_, text := driverResult(r)
	return text
}

// Error returns the name and the meaning.
func (r Result) Error() string {
	if text := r.Text(); text != "" {
		return r.Name() + " (" + text + ")"
	}
	return r.Name()
}

// Sticky says whether the context is lost. Then every later call in it fails with the same result until the context is destroyed, or,
// if it is a primary context, until the process ends.
func (r Result) Sticky() bool { return results[r].sticky }

// driverResult asks the driver for the name and text of a result that is not in the table. Without the driver it returns "".
var driverResult = func(Result) (name, text string) { return "", "" }

type description struct {
	name, text string
	sticky     bool
}

// results has the codes of CUDA 11 to 13 after which the context is lost, and other common ones. The driver describes the rest.
var results = map[Result]description{
	0:   {"CUDA_SUCCESS", "no error", false},
	1:   {"CUDA_ERROR_INVALID_VALUE", "invalid argument", false},
	2:   {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory", false},
	46:  {"CUDA_ERROR_DEVICE_UNAVAILABLE", "device busy or unavailable", true},
	100: {"CUDA_ERROR_NO_DEVICE", "no CUDA device", false},
	201: {"CUDA_ERROR_INVALID_CONTEXT", "invalid context", false},
	214: {"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable memory error", true},
	218: {"CUDA_ERROR_INVALID_PTX", "PTX rejected", false},
	220: {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error", true},
	226: {"CUDA_ERROR_CONTAINED", "contained memory error", true},
	304: {"CUDA_ERROR_OPERATING_SYSTEM", "operating system call failed", false},
	400: {"CUDA_ERROR_INVALID_HANDLE", "invalid handle", false},
	500: {"CUDA_ERROR_NOT_FOUND", "named symbol not found", false},
	600: {"CUDA_ERROR_NOT_READY", "not ready", false},
	700: {"CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access", true},
	702: {"CUDA_ERROR_LAUNCH_TIMEOUT", "launch timed out", true},
	704: {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access already enabled", false},
	709: {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "context destroyed", true},
	710: {"CUDA_ERROR_ASSERT", "device-side assertion", true},
	712: {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "host memory already registered", false},
	714: {"CUDA_ERROR_HARDWARE_STACK_ERROR", "stack error on the device", true},
	715: {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction", true},
	716: {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address", true},
	717: {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "wrong address space", true},
	718: {"CUDA_ERROR_INVALID_PC", "invalid program counter", true},
	719: {"CUDA_ERROR_LAUNCH_FAILED", "launch failed", true},
	721: {"CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory leaked", true},
	800: {"CUDA_ERROR_NOT_PERMITTED", "not permitted", false},
	801: {"CUDA_ERROR_NOT_SUPPORTED", "not supported", false},
	806: {"CUDA_ERROR_MPS_RPC_FAILURE", "MPS call failed", true},
	810: {"CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS client terminated", true},
	900: {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted while the stream is capturing", false},
	906: {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "implicit dependency on a capturing stream", false},
	911: {"CUDA_ERROR_EXTERNAL_DEVICE", "error of an external device", true},
}
