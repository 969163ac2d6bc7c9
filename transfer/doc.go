// Package transfer is the host tier: every row of a table, compressed, in host memory that the kernels of devices read
// directly. It also plans these reads.
//
// A [Tier] is loaded once from a [Source], whose rows it copies. It is then safe for concurrent reading. It has one of two
// layouts:
//
//   - in place: row r begins at r × stride, where stride is the row bytes rounded up to 4. There is no index. One bit a row
//     in every device's memory says whether the row is compressed. This layout saves transferred bytes, not host memory.
//   - packed: rows lie back to back at multiples of 4 bytes. An index of 8 bytes a row, slab.Location words with slab ID 0,
//     lies in every device's memory and does not count against the budget. This layout saves host memory as well.
//
// The memory ends in slab.TailSlack bytes, so that vector loads of the last row stay inside it.
//
// A [Plan] enqueues the reads of a batch's misses. A [Sharer] lets the host's processors gather a part of the misses if that
// is faster.
package transfer
