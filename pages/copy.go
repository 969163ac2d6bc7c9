package pages

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tensorcache/tensorcache/internal/directio"
)

// Copy writes the pages of a store to a writer, as they are, and commits them as the writer's next generation. Every page is checked on the
// way. It calls w.Abort if it fails. Progress, if not nil, is told how many pages have been copied.
func Copy(ctx context.Context, from Store, w Writer, progress func(pages uint32)) (_ *Manifest, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Abort())
		}
	}()
	m := *from.Manifest()
	m.Generation = w.Generation()
	var parts Parts
	for p := range parts {
		if parts[p], err = from.Part(ctx, Part(p)); err != nil {
			return nil, fmt.Errorf("pages: %s: table %s: %v: %w", from.Name(), m.Name, Part(p), err)
		}
	}
	index, err := newIndex(&m, parts[PartIndex])
	if err != nil {
		return nil, err
	}
	err = scan(ctx, from, index, func(first uint32, pages [][]byte, _ []parsedPage) error {
		if err := w.WritePages(ctx, first, pages); err != nil {
			return err
		}
		if progress != nil {
			progress(first + uint32(len(pages)))
		}
		return nil
	}, true)
	if err != nil {
		return nil, err
	}
	return &m, w.Commit(ctx, &m, &parts)
}

// scan reads all pages of a store, checks them, and hands them on in order, a window at a time, while the next window is read. Their memory
// is used again afterwards. If stop, the first fault ends it; otherwise a page at fault is nil, and scan returns the faults of all, joined,
// at most maxFaults of them.
func scan(ctx context.Context, from Store, x *index, visit func(first uint32, bytes [][]byte, pages []parsedPage) error, stop bool) error {
	m := from.Manifest()
	type window struct {
		first   uint32
		memory  []byte
		scratch [][]byte
		bytes   [][]byte
		pages   []parsedPage
		faults  []error // by page
	}
	n := max(1, windowBytes/max(1, m.BufferBytes()))
	free, full := make(chan *window, 3), make(chan *window, 3)
	for range cap(free) {
		free <- &window{scratch: make([][]byte, n)}
	}
	ctx, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	reader.Go(func() {
		defer close(full)
		for first := int64(0); first < int64(m.Pages); first += int64(n) {
			var w *window
			select {
			case w = <-free:
			case <-ctx.Done():
				return
			}
			count := int(min(int64(n), int64(m.Pages)-first))
			if w.memory == nil {
				w.memory = directio.Aligned(n * m.BufferBytes())
			}
			w.first, w.bytes, w.pages, w.faults = uint32(first), make([][]byte, count), make([]parsedPage, count), make([]error, count)
			numbers, into := make([]uint32, count), make([][]byte, count)
			for i := range numbers {
				numbers[i], into[i] = uint32(first)+uint32(i), w.memory[i*m.BufferBytes():][:m.BufferBytes()]
			}
			from.ReadPages(ctx, numbers, into, func(i int, b []byte, err error) { w.bytes[i], w.faults[i] = b, err })
			parallel(count, func(i int) {
				if w.faults[i] == nil {
					w.pages[i], w.scratch[i], w.faults[i] = x.parse(numbers[i], w.bytes[i], m.RowBytes, w.scratch[i])
				}
				if w.faults[i] != nil {
					w.bytes[i], w.pages[i] = nil, parsedPage{}
				}
			})
			full <- w
		}
	})
	var faults []error
	for w := range full {
		for i, err := range w.faults {
			if err == nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			err = &PageError{Store: from.Name(), Table: m.Name, Page: w.first + uint32(i), Err: err}
			if stop {
				return err
			}
			if len(faults) < maxFaults {
				faults = append(faults, err)
			}
			w.memory = nil // the store may still write to it
		}
		if err := visit(w.first, w.bytes, w.pages); err != nil {
			return err
		}
		free <- w
	}
	return errors.Join(append(faults, ctx.Err())...)
}

// maxFaults bounds how many faults an error lists.
const maxFaults = 100
