package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/pages"
)

// Commit implements pages.Writer. It looks whether every page is there, and waits a while for the replicas; after Replaces, the generation is committed
// without an error only if all replicas have it. m must have the table's name.
func (w *Writer) Commit(ctx context.Context, m *pages.Manifest, parts *pages.Parts) error {
	if err := w.usable(); err != nil {
		return err
	}
	if m.Pages != w.next || m.Generation != w.generation {
		return fmt.Errorf("cluster: %d pages of generation %d were written, the manifest has %d of %d", w.next, w.generation, m.Pages, m.Generation)
	}
	if m.Name != w.table {
		return fmt.Errorf("cluster: name of the table (%q) in the manifest must be %q", m.Name, w.table)
	}
	text, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	if err := w.writeParts(ctx, m, parts); err != nil {
		return err
	}
	if err := w.look(ctx); err != nil {
		return err
	}
	if !w.awaitReplicas(ctx, w.names(m)...) && w.replaces != nil {
		return fmt.Errorf("cluster: table %s: generation %d is not committed: %w", w.table, w.generation, errReplicas)
	}
	if _, err := w.do(ctx, func() valkey.Completed { return w.client.B().Sadd().Key(tablesKey).Member(w.table).Build() }); err != nil {
		return fmt.Errorf("cluster: table %s: %w", w.table, err)
	}
	done := w.is
	done.is, done.pages = ready, m.Pages
	if err := w.become(ctx, done, text); err != nil {
		return err
	}
	known := w.awaitReplicas(ctx, w.keys.last())
	w.finish()
	if !known && w.replaces != nil {
		return fmt.Errorf("cluster: table %s: generation %d is committed: %w", w.table, w.generation, errReplicas)
	}
	return nil
}

// errReplicas says that the loss of a master may undo what was written.
var errReplicas = errors.New("not all replicas have acknowledged it")

// writeParts writes what the generation has besides pages.
func (w *Writer) writeParts(ctx context.Context, m *pages.Manifest, parts *pages.Parts) error {
	announce := w.is
	for p, b := range parts {
		if err := m.Check(pages.Part(p), b); err != nil {
			return err
		}
		announce.chunks[p] = chunks(int64(len(b)))
	}
	if err := w.become(ctx, announce, nil); err != nil {
		return err
	}
	for p, b := range parts {
		for first := 0; first < announce.chunks[p]; first += chunksAtOnce {
			var names []string
			values := map[string]string{}
			for chunk := first; chunk < min(first+chunksAtOnce, announce.chunks[p]); chunk++ {
				name := w.part(w.generation, pages.Part(p), chunk)
				names = append(names, name)
				values[name] = string(b[chunk*chunkBytes : min((chunk+1)*chunkBytes, len(b))])
			}
			if err := w.set(ctx, names, values); err != nil {
				return err
			}
		}
	}
	return nil
}

// names returns keys that were written: those of parts, and of so many pages that every master has one of them.
func (w *Writer) names(m *pages.Manifest) (names []string) {
	for p, n := range w.is.chunks {
		for chunk := range n {
			names = append(names, w.part(w.generation, pages.Part(p), chunk))
		}
	}
	for page := range min(m.Pages, slots) {
		names = append(names, w.page(w.generation, page))
	}
	return names
}

// look returns an error if a page is not there: a master may have died before it had passed the page on.
func (w *Writer) look(ctx context.Context) error {
	for first := uint32(0); first < w.next; first += erasedAtOnce {
		var names []string
		for page := first; page < min(first+erasedAtOnce, w.next); page++ {
			names = append(names, w.page(w.generation, page))
		}
		var missing error
		err := w.eachResult(ctx, names, func(name string) valkey.Completed { return w.client.B().Exists().Key(name).Build() },
			func(name string, r valkey.ValkeyResult) {
				if n, err := r.AsInt64(); err != nil || n != 1 {
					missing = fmt.Errorf("cluster: table %s: key %s: %w: a master was lost, or evicts keys", w.table, name, ErrMissing)
				}
			})
		if err := errors.Join(err, missing); err != nil {
			return err
		}
	}
	return nil
}
