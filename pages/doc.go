// Package pages stores tables as immutable pages of compressed rows, for the tiers below host memory: files on local drives (this package),
// a cluster (package cluster), memory for tests.
//
// Terms:
//   - A page is 64 KiB to 1 MiB of rows, back to back in stored form (encoded by the table's codec, or raw where a row does not shrink), with
//     a directory and a checksum. It is what is read at once. A second stage, zstd or lz4, may compress it as a whole.
//   - The position of a row is its place among all rows in the order in which pages hold them. It is the row's number, unless the table is
//     ordered: then the order says which position each row has.
//   - A group is a run of [Manifest.GroupRows] positions, the unit of packing. All its pages have equally many rows, but for its last.
//   - A generation is one complete version of a table's pages. It never changes. A [Writer] makes the next one, which readers see when
//     it is committed.
//   - A [Store] has the pages of one generation. A [Table] reads rows from several stores of the same contents.
//
// A page is checked twice: by the checksum in its header, and against the index, which holds the checksum of every page. So a page of
// another table or generation is refused even if it is sound. Byte formats: docs/format/pages.md.
//
// [Table] and every [Store] are safe for concurrent use. A [Writer] is not.
package pages
