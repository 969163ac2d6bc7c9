package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/pages"
)

// Commit implements pages.Writer. It waits a while for the replicas, and then looks whether every page and part is there; after Replaces, the generation is
// committed without an error only if all replicas have it, also those that the cluster has marked as failed. m must have the table's name.
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
	// What a replica lacks that has taken its master's place is found by the look, which comes after the wait. A replica that does so after the wait has everything.
	acknowledged, err := w.acknowledged(ctx, w.names(m)...)
	if err != nil {
		return fmt.Errorf("cluster: table %s: generation %d is not committed: %w", w.table, w.generation, err)
	}
	if err := w.look(ctx); err != nil {
		return err
	}
	if !acknowledged && w.replaces != nil {
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
	known, err := w.acknowledged(ctx, w.keys.last())
	w.finish()
	if err == nil && !known {
		err = errReplicas
	}
	if err != nil && w.replaces != nil {
		return fmt.Errorf("cluster: table %s: generation %d is committed: %w", w.table, w.generation, err)
	}
	return nil
}

// acknowledged waits a while for the replicas of keys. After Replaces it waits for all of them, and before that for slots on their way.
func (w *Writer) acknowledged(ctx context.Context, names ...string) (bool, error) {
	if w.replaces == nil {
		return w.awaitReplicas(ctx, false, names...), nil
	}
	return w.awaitSettled(ctx, names...)
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

// partNames returns the keys of the parts.
func (w *Writer) partNames() (names []string) {
	for p, n := range w.is.chunks {
		for chunk := range n {
			names = append(names, w.part(w.generation, pages.Part(p), chunk))
		}
	}
	return names
}

// names returns keys that were written: those of parts, and of so many pages that every master has one of them.
func (w *Writer) names(m *pages.Manifest) []string {
	names := w.partNames()
	for page := range min(m.Pages, slots) {
		names = append(names, w.page(w.generation, page))
	}
	return names
}

// look returns an error if a page or a chunk of a part is not there: a master may have died before it had passed the key on.
func (w *Writer) look(ctx context.Context) error {
	names := w.partNames()
	for page := range w.next {
		if len(names) >= erasedAtOnce {
			if err := w.lookFor(ctx, names); err != nil {
				return err
			}
			names = names[:0]
		}
		names = append(names, w.page(w.generation, page))
	}
	return w.lookFor(ctx, names)
}

// lookFor returns an error that names the keys which are missing or empty, the first few of them. No page and no chunk is empty.
func (w *Writer) lookFor(ctx context.Context, names []string) error {
	var missing []string
	var fault error
	err := w.eachResult(ctx, names, func(name string) valkey.Completed { return w.client.B().Strlen().Key(name).Build() },
		func(name string, r valkey.ValkeyResult) {
			if n, err := r.AsInt64(); err != nil {
				fault = fmt.Errorf("cluster: table %s: key %s: %w", w.table, name, err)
			} else if n == 0 {
				missing = append(missing, name)
			}
		})
	if len(missing) > 0 {
		more := ""
		if n := len(missing) - missingNamed; n > 0 {
			missing, more = missing[:missingNamed], fmt.Sprintf(" and %d more", n)
		}
		fault = errors.Join(fault, fmt.Errorf("cluster: table %s: key %s%s: %w: a master was lost, or evicts keys", w.table, strings.Join(missing, ", "), more, ErrMissing))
	}
	return errors.Join(err, fault)
}

// missingNamed is how many missing keys an error names.
const missingNamed = 5
