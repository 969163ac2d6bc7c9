package kernels

// Tables of tests are short: without this none of their memory would be asked for ahead of its use.
func init() { aheadFrom = 1 }
