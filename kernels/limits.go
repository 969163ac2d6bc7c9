package kernels

// Limits that tests set for all launches on GPUs; 0 is none. With few blocks of few warps every tile decodes many rows of a short batch.
var (
	sharedLimit int // bytes of shared memory of a block
	blockLimit  int // blocks of a launch
	warpLimit   int // warps of a block, unless a whole block decodes a row
)

// limited returns n, or a limit that is less.
func limited(n, limit int) int {
	if limit != 0 {
		return min(n, limit)
	}
	return n
}
