// Package reduce adds up rows of floating-point numbers, in an order that does not depend on where a batch is computed.
//
// # The order
//
// A batch is divided into bags of consecutive positions. Every element of a bag's sum is computed on its own, in float32, with each operation
// rounded to nearest even:
//
//   - A run is [Run] consecutive rows of a bag; the first one begins at the bag's first row, and the last one may be shorter. Its sum is
//     ((x₀ + x₁) + x₂) + … With weights, xᵢ is the product of row and weight, rounded before it is added.
//   - A group is [GroupRuns] consecutive runs. Its sum is that of its runs' sums, in their order.
//   - The bag's sum is that of its groups' sums, in their order. A mean is divided by the number of the bag's rows, as a float32.
//
// So a row's element takes part in at most Run + GroupRuns + bag/Group additions, and the error of a sum is far below that of one chain of
// additions. Runs of a bag can be summed at the same time: on a GPU by different warps, on the host groups by different processors.
//
// The maximum is that of one chain: it begins with the bag's first row, and a row's element replaces it if it is greater. So a NaN stays if it is in
// the bag's first row, and is passed over elsewhere, as in PyTorch. (If the first run of a bag is all padding, a NaN is always passed over.)
//
// Padding rows are left out, as if they were not there: but they count as positions of their run. A bag without other rows gives zeros.
//
// Results are rounded to the output's type, to nearest even; what is too large for it becomes an infinity. Every NaN becomes one with the same bits:
// 0x7fc00000, 0x7fc0 in bfloat16, and 0x7e00 in float16. So results are the same to the bit on all machines.
package reduce

// Run and GroupRuns say how many rows make a run, and how many runs a group: see the package's comment. Group is the rows of a group.
const (
	Run       = 32
	GroupRuns = 32
	Group     = Run * GroupRuns
)
