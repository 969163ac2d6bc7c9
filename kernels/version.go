package kernels

// Version identifies the code of the kernels that run on GPUs: it changes when any of them does. A build without them has the version "host".
func Version() string { return version() }

// HasMachineCode says whether this build has machine code for GPUs of a compute capability such as "9.0". For others the driver compiles PTX when a
// kernel is first used.
func HasMachineCode(capability string) bool { return hasMachineCode(capability) }
