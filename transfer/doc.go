// Package transfer is the host tier: host memory that holds every row of a table, compressed, where devices can read it
// themselves, and the planning of those reads.
//
// A [Tier] is loaded once from a [Source], whose rows it copies, and is safe for concurrent reading afterwards. Two modes:
//
//   - in place: row r lies at r × stride, stride being the row bytes rounded up to 4. No index; one bit per row says
//     compressed or raw, and lies in every device's memory. Saves bytes moved, not host memory.
//   - packed: rows lie back to back, each at a multiple of 4. An index of 8 bytes a row, a slab.Location with slab ID 0,
//     lies in every device's memory, outside the budget. Saves host memory too.
//
// A [Plan] enqueues the reads of a batch's misses. Where that pays a [Sharer] has the host's processors do a part of them.
//
// The memory ends in slab.TailSlack bytes for vector reads.
package transfer
