// Package delta is a log of updated rows beside the immutable pages of a table: package pages. Rows are appended, are found by their number,
// and are merged into the pages of the next generation from time to time (pages.Rewrite).
//
// The log is a folder of segments, files that are only ever appended to. A batch is what one call of Append wrote; it is there as a whole
// or not at all. A log that was opened durable is on the drive before Append returns. Opening reads all segments, keeps in memory where the
// newest version of each row lies, and cuts off a batch that was being written when the process or the machine ended. Byte format:
// docs/format/delta.md.
//
// Invariants:
//   - A row's newest version is the one with the highest batch number.
//   - Batch numbers follow each other without gaps, over all segments.
//   - A durable batch says how many batches before it may not have been on the drive when it was written. It proves that those before these
//     were: what is damaged there is an error, not a torn end.
//
// A [Log] is safe for concurrent use. Only one process can have it open.
package delta
