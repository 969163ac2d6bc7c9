package pages

import (
	"context"
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/internal/directio"
)

// Store has the pages of one generation of a table. Its methods may be called concurrently.
type Store interface {
	// Name says in errors and statistics which store it is, such as "files /data/table.tc".
	Name() string
	// Manifest returns the generation's manifest, which must not be changed.
	Manifest() *Manifest
	// Part returns a part of the generation, checked by Manifest.Check.
	Part(ctx context.Context, p Part) ([]byte, error)
	// ReadPages reads pages[i] to the front of into[i], which is at least as long as [BufferBytes] of the manifest, and calls done once for
	// each i, from any goroutine, in any order, with the page's bytes or an error. The bytes need not lie in into[i]. They are those that the
	// store has: the caller checks them. ReadPages returns when done has been called for all pages; a page that fails does not stop the
	// others. When ctx ends, pages that have not arrived fail with its error. The memory of a page that failed may still be written to
	// later: the caller must not use it again.
	ReadPages(ctx context.Context, pages []uint32, into [][]byte, done func(i int, page []byte, err error))
	// Close frees what the store holds. Reads that are under way fail or end first.
	Close() error
}

// Writer takes the pages of a new generation, which no reader sees before Commit has returned.
type Writer interface {
	// Generation is the number of the new generation.
	Generation() uint64
	// WritePages takes pages from number first on, in ascending order without gaps. The memory is the caller's again when it returns.
	WritePages(ctx context.Context, first uint32, pages [][]byte) error
	// Commit makes the generation the one that readers open. m has the writer's Generation, and the sums of parts. Everything is durable,
	// as far as the store can say, when it returns nil.
	Commit(ctx context.Context, m *Manifest, parts *Parts) error
	// Abort gives up a generation that was not committed and frees what it took, unless it can be resumed. It is no error after Commit.
	Abort() error
}

// Rewritable is a Store whose table can get a next generation while this one is read. Where the generation lies is up to the store.
type Rewritable interface {
	Store
	// Rewriter returns a writer of the next generation. It fails, and so does the writer's Commit, if this store's generation is not the current one any
	// more. When Commit has returned nil, the loss of one node whose data has a replica takes nothing back.
	Rewriter(ctx context.Context) (Writer, error)
	// Settle waits while the store cannot take a generation for a reason that passes, such as slots of a cluster on their way between masters, a minute at
	// most. It returns an error that wraps ErrUnsettled if the reason has not passed then. It writes nothing. Commit waits likewise.
	Settle(ctx context.Context) error
	// Current returns the number of the current generation, which need not be this store's.
	Current(ctx context.Context) (generation uint64, err error)
	// Reopen opens the current generation in the way in which this store was opened. Reads of this store go on.
	Reopen(ctx context.Context) (Store, error)
	// DropOld deletes the generations that are not the current one and that nobody reads or writes.
	DropOld(ctx context.Context) error
}

// ErrUnsettled is wrapped by errors of a Rewritable that cannot take a generation while it moves data between its parts.
var ErrUnsettled = errors.New("the store moves data, and takes no new generation meanwhile")

// block is the unit in which files hold pages, in bytes: direct reads begin and end at multiples of it.
const block = directio.Block

// BufferBytes is the length of a buffer for any page of a table: the longest page, rounded up to 4,096 bytes. Stores read fastest into
// buffers that begin at a multiple of 4,096.
func (m *Manifest) BufferBytes() int { return directio.Blocks(m.LongestPage) * block }

// PageError says that a page could not be read from a store.
type PageError struct {
	Store, Table string
	Page         uint32
	Err          error
}

func (e *PageError) Error() string {
	return fmt.Sprintf("pages: %s: table %s page %d: %v", e.Store, e.Table, e.Page, e.Err)
}

func (e *PageError) Unwrap() error { return e.Err }
