// Package cluster keeps the pages of tables in a Valkey or Redis Cluster, or in one server: the tier behind page files, or without them.
//
// Terms, besides those of package pages:
//   - A node is one server. A shard is a master and its replicas; it has a part of the 16,384 slots that keys hash to.
//   - The control keys of a table say which generation is the current one, which others there are, and who reads them. They lie in one
//     slot, so that one script changes several at once.
//   - A lease is a key with a time to live that names a reader of a generation. Readers renew it.
//   - A request is one pipeline of GETs to one node, for pages of one shard.
//
// Keys, and what they hold: docs/format/cluster.md. The rules that keep readers from a mixture of generations:
//   - A number is given to one generation only, whether it is committed or not.
//   - A page is never written again once its generation is committed.
//   - One script makes a generation the current one, if the loader's mark still stands.
//   - A generation is marked as dropping before leases are looked for, and a reader looks at the mark after it has taken its lease. So
//     either the reader sees the mark, or who drops sees the lease.
//   - A generation is deleted only when the replicas know that mark, as one of them may take its master's place. Replicas that the cluster has
//     marked as failed are passed over.
//
// A page may be read from any node of its shard. A node that fails, or answers late, is left for the next one; after several failures it is
// not asked for a while. A replica that lacks a page is no answer: its master is asked.
//
// [Store] is safe for concurrent use. A [Writer] is not.
package cluster
