package driver

import "fmt"

// Result is a CUresult. The zero value is success; every other is an error, for errors.Is.
type Result int32

// Results that callers tell apart.
const (
	success                 Result = 0
	invalidValue            Result = 1
	OutOfMemory             Result = 2
	noDevice                Result = 100
	invalidContext          Result = 201
	invalidPTX              Result = 218
	notFound                Result = 500
	notReady                Result = 600
	illegalAddress          Result = 700
	peerAlreadyEnabled      Result = 704
	hostAlreadyRegistered   Result = 712
	launchFailed            Result = 719
	notPermitted            Result = 800
	notSupported            Result = 801
	streamCaptureImplicit   Result = 906
	streamCaptureNotAllowed Result = 900
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

// Sticky says whether the context is lost: every later call in it fails with the same result, and only destroying the
// context, or for a primary context the end of the process, ends that.
func (r Result) Sticky() bool {
	d := results[r]
	return d.sticky
}

// driverResult asks the driver for a result that is not in the table; nil-like without the driver.
var driverResult = func(Result) (name, text string) { return "", "" }

type description struct {
	name, text string
	sticky     bool
}

// results holds the codes of CUDA 11 to 13. The texts are ours where no driver may be there to ask.
var results = map[Result]description{
	0:   {"CUDA_SUCCESS", "no error", false},
	1:   {"CUDA_ERROR_INVALID_VALUE", "invalid argument", false},
	2:   {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory", false},
	3:   {"CUDA_ERROR_NOT_INITIALIZED", "driver not initialized", false},
	4:   {"CUDA_ERROR_DEINITIALIZED", "driver shutting down", false},
	34:  {"CUDA_ERROR_STUB_LIBRARY", "the library is the toolkit's stub, not a driver", false},
	46:  {"CUDA_ERROR_DEVICE_UNAVAILABLE", "device busy or unavailable", true},
	100: {"CUDA_ERROR_NO_DEVICE", "no CUDA device", false},
	101: {"CUDA_ERROR_INVALID_DEVICE", "invalid device", false},
	102: {"CUDA_ERROR_DEVICE_NOT_LICENSED", "device not licensed", false},
	200: {"CUDA_ERROR_INVALID_IMAGE", "not a kernel image", false},
	201: {"CUDA_ERROR_INVALID_CONTEXT", "invalid context", false},
	202: {"CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "context already current", false},
	205: {"CUDA_ERROR_MAP_FAILED", "mapping failed", false},
	206: {"CUDA_ERROR_UNMAP_FAILED", "unmapping failed", false},
	207: {"CUDA_ERROR_ARRAY_IS_MAPPED", "array is mapped", false},
	208: {"CUDA_ERROR_ALREADY_MAPPED", "already mapped", false},
	209: {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image for this device", false},
	210: {"CUDA_ERROR_ALREADY_ACQUIRED", "already acquired", false},
	211: {"CUDA_ERROR_NOT_MAPPED", "not mapped", false},
	212: {"CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "not mapped as an array", false},
	213: {"CUDA_ERROR_NOT_MAPPED_AS_POINTER", "not mapped as a pointer", false},
	214: {"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable memory error", true},
	215: {"CUDA_ERROR_UNSUPPORTED_LIMIT", "limit not supported", false},
	216: {"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "context bound to another thread", false},
	217: {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "no peer access between these devices", false},
	218: {"CUDA_ERROR_INVALID_PTX", "PTX rejected", false},
	219: {"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid graphics context", false},
	220: {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error", true},
	221: {"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX compiler library not found", false},
	222: {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "PTX newer than the driver's compiler", false},
	223: {"CUDA_ERROR_JIT_COMPILATION_DISABLED", "PTX compilation disabled", false},
	224: {"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "execution affinity not supported", false},
	225: {"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "device-side synchronization not supported", false},
	226: {"CUDA_ERROR_CONTAINED", "contained memory error", true},
	300: {"CUDA_ERROR_INVALID_SOURCE", "invalid kernel source", false},
	301: {"CUDA_ERROR_FILE_NOT_FOUND", "file not found", false},
	302: {"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "symbol of a shared library not found", false},
	303: {"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared library failed to initialize", false},
	304: {"CUDA_ERROR_OPERATING_SYSTEM", "operating system call failed", false},
	400: {"CUDA_ERROR_INVALID_HANDLE", "invalid handle", false},
	401: {"CUDA_ERROR_ILLEGAL_STATE", "not legal in the present state", false},
	402: {"CUDA_ERROR_LOSSY_QUERY", "query would lose information", false},
	500: {"CUDA_ERROR_NOT_FOUND", "named symbol not found", false},
	600: {"CUDA_ERROR_NOT_READY", "not ready", false},
	700: {"CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access", true},
	701: {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch", false},
	702: {"CUDA_ERROR_LAUNCH_TIMEOUT", "launch timed out", true},
	703: {"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "incompatible texturing mode", false},
	704: {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access already enabled", false},
	705: {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access not enabled", false},
	708: {"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "primary context active", false},
	709: {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "context destroyed", true},
	710: {"CUDA_ERROR_ASSERT", "device-side assertion", true},
	711: {"CUDA_ERROR_TOO_MANY_PEERS", "too many peers", false},
	712: {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "host memory already registered", false},
	713: {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "host memory not registered", false},
	714: {"CUDA_ERROR_HARDWARE_STACK_ERROR", "stack error on the device", true},
	715: {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction", true},
	716: {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address", true},
	717: {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "wrong address space", true},
	718: {"CUDA_ERROR_INVALID_PC", "invalid program counter", true},
	719: {"CUDA_ERROR_LAUNCH_FAILED", "launch failed", true},
	720: {"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "cooperative launch too large", false},
	721: {"CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory leaked", true},
	800: {"CUDA_ERROR_NOT_PERMITTED", "not permitted", false},
	801: {"CUDA_ERROR_NOT_SUPPORTED", "not supported", false},
	802: {"CUDA_ERROR_SYSTEM_NOT_READY", "system not ready", false},
	803: {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "kernel and user-mode driver do not match", false},
	804: {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "device without forward compatibility", false},
	805: {"CUDA_ERROR_MPS_CONNECTION_FAILED", "no connection to the MPS server", false},
	806: {"CUDA_ERROR_MPS_RPC_FAILURE", "MPS call failed", true},
	807: {"CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS server not ready", false},
	808: {"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "too many MPS clients", false},
	809: {"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "too many MPS connections", false},
	810: {"CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS client terminated", true},
	811: {"CUDA_ERROR_CDP_NOT_SUPPORTED", "dynamic parallelism not supported", false},
	812: {"CUDA_ERROR_CDP_VERSION_MISMATCH", "dynamic parallelism version mismatch", false},
	900: {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted while the stream is capturing", false},
	901: {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "capture invalidated by an earlier error", false},
	902: {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "would merge two captures", false},
	903: {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture not begun in this stream", false},
	904: {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capture has an unjoined fork", false},
	905: {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency on uncaptured work", false},
	906: {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "implicit dependency on a capturing stream", false},
	907: {"CUDA_ERROR_CAPTURED_EVENT", "event recorded in a capturing stream", false},
	908: {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "capture begun by another thread", false},
	909: {"CUDA_ERROR_TIMEOUT", "wait timed out", false},
	910: {"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "graph cannot be updated in place", false},
	911: {"CUDA_ERROR_EXTERNAL_DEVICE", "error of an external device", true},
	912: {"CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size", false},
	913: {"CUDA_ERROR_FUNCTION_NOT_LOADED", "function not loaded", false},
	914: {"CUDA_ERROR_INVALID_RESOURCE_TYPE", "invalid resource type", false},
	915: {"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "invalid resource configuration", false},
	916: {"CUDA_ERROR_KEY_ROTATION", "key rotation under way", false},
	999: {"CUDA_ERROR_UNKNOWN", "unknown error", false},
}
