package kernels

// Version identifies the code of the kernels that run on GPUs: it changes when any of them does. A build without them has the version "host".
func Version() string { return version() }
