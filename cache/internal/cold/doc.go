// Package cold reads the rows of a table that its host tier does not hold: from pages in files or in a cluster, and from the log of updated rows.
//
// Terms. An absent row lies below the host tier only. A flight is rows that are being read, or have been read, and are on their way to the host
// tier; batches take rows from it meanwhile.
//
// Rules. Every read is bounded: by its context, by the table's time-out, and by End. A row's version counter changes before its new version can
// be found in memory, and after the log has it. A reader that keeps a row loads the counter first, and keeps the row only if the counter is
// still the same, under the writer's lock, when batches can find it.
//
// A Table is safe for concurrent use.
package cold
