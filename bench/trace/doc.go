// Package trace reads and writes traces: sequences of accesses to objects that have 64-bit IDs. Readers and writers are
// not safe for concurrent use.
//
// # Terms
//
// A request is one access. Logical time is a request's index in its file, from 0. The next access of a request is the
// logical time of the next request for the same ID.
//
// # Formats
//
//	tct            this package's, see docs/format/trace.md; also of captured accesses
//	oraclegeneral  libCacheSim's binary records, with the next access
//	cachelib       CacheLib cachebench's CSV: key, op, size, op_count, key_size, ...
//	arc            start count ignore request: count IDs from start on
//	lirs, ids      one ID a line
//	lcs            libCacheSim's binary files with a header, versions 1 to 8
//	csv            libCacheSim's CSV, whose columns Options.Params names by their numbers
//	mooncake       JSON lines; the elements of hash_ids in order
//
// Each may be gzip or zstd. Open tells formats by content, and by name where content does not say.
//
// # Invariants
//
//   - Readers stream: their memory is bounded, whatever the file says. A mooncake line may have 16 MiB, others 64 KiB.
//   - What a file does not say is 0 (Size, Time), Unknown (Next), or UnknownOutcome.
//   - A fault of the input is an *Error with the offset in the decompressed data; what precedes it has been read before.
//   - Files that Create makes appear under their name when they are complete.
//
// # Semantics of operations
//
// Get is a lookup; what misses is admitted. Set writes an object, which is then cached if the policy wants it; Delete drops
// it. Only gets count as requests of miss ratios. Formats without operations hold gets.
package trace
