package model

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/internal/datafile"
	"github.com/tensorcache/tensorcache/pages"
)

// Want is a part of a tensor to read: as many bytes from At on as Into has.
type Want struct {
	Tensor int
	At     int64
	Into   []byte
}

// batchBytes is about how many bytes of tensors are read at once, and batches how many such reads are under way.
const (
	batchBytes = 32 << 20
	batches    = 2
)

// Read reads parts of tensors, whole pages at a time, by all processors. Parts must not overlap in memory. Besides, it takes about 128 MiB for each model of a chain.
func (m *Model) Read(ctx context.Context, wants []Want) error {
	wants = slices.Clone(wants)
	for _, w := range wants {
		if w.Tensor < 0 || w.Tensor >= len(m.tensors) {
			return fmt.Errorf("model: %s: tensor (%d) must be 0 to %d", m.path, w.Tensor, len(m.tensors)-1)
		}
		if t := &m.tensors[w.Tensor]; w.At < 0 || w.At > t.Bytes() || int64(len(w.Into)) > t.Bytes()-w.At {
			return fmt.Errorf("model: %s: %d bytes of tensor %q from %d on must lie in its %d", m.path, len(w.Into), datafile.Clip(t.Name), w.At, t.Bytes())
		}
	}
	wants = slices.DeleteFunc(wants, func(w Want) bool { return len(w.Into) == 0 })
	slices.SortFunc(wants, func(a, b Want) int {
		x, y := &m.tensors[a.Tensor], &m.tensors[b.Tensor]
		return cmp.Or(cmp.Compare(m.place(x), m.place(y)), cmp.Compare(x.at+a.At, y.at+b.At))
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var once sync.Once
	var fault error
	workers := batches
	if m.packed == nil {
		workers = max(batches, runtime.GOMAXPROCS(0)) // nothing below reads in parallel
	}
	parts := make(chan []Want)
	for range workers {
		group.Go(func() {
			for part := range parts {
				if err := m.readPart(ctx, part); err != nil {
					once.Do(func() { fault = err })
					stop()
				}
			}
		})
	}
	for part := range m.split(wants) {
		select {
		case parts <- part:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(parts)
	group.Wait()
	if fault == nil {
		fault = ctx.Err()
	}
	return fault
}

// place is the table, or the file, of a tensor.
func (m *Model) place(t *Tensor) int {
	if m.packed == nil {
		return t.File
	}
	return t.table
}

// split yields parts of at most batchBytes, each of one table or file, whose reads ascend and do not overlap. Longer reads are cut.
func (m *Model) split(wants []Want) func(yield func([]Want) bool) {
	most := int64(batchBytes)
	if m.packed == nil {
		most = batchBytes / 4
	}
	return func(yield func([]Want) bool) {
		var part []Want
		size, end := int64(0), int64(0) // of the part
		for i := range wants {
			w := wants[i]
			begin := m.tensors[w.Tensor].at + w.At
			if len(part) > 0 && (m.place(&m.tensors[part[0].Tensor]) != m.place(&m.tensors[w.Tensor]) || begin < end) {
				if !yield(part) {
					return
				}
				part, size = nil, 0
			}
			for len(w.Into) > 0 {
				cut := w
				if n := most - size; int64(len(w.Into)) > n {
					// So that no row is decoded for two parts.
					if m.packed != nil {
						row := int64(m.packed.Tables[m.tensors[w.Tensor].table].RowBytes)
						n = max(1, n-(m.tensors[w.Tensor].at+w.At+n)%row)
					}
					cut.Into = w.Into[:min(int64(len(w.Into)), n)]
				}
				part, size = append(part, cut), size+int64(len(cut.Into))
				end = m.tensors[w.Tensor].at + cut.At + int64(len(cut.Into))
				w.At, w.Into = w.At+int64(len(cut.Into)), w.Into[len(cut.Into):]
				if size >= most-int64(1<<20) {
					if !yield(part) {
						return
					}
					part, size = nil, 0
				}
			}
		}
		if len(part) > 0 {
			yield(part)
		}
	}
}

// readPart reads what lies in one table or file.
func (m *Model) readPart(ctx context.Context, wants []Want) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.packed == nil {
		for _, w := range wants {
			t := &m.tensors[w.Tensor]
			if n, err := m.raw[t.File].ReadAt(w.Into, t.at+w.At); n < len(w.Into) {
				return fmt.Errorf("model: %s: file %s: tensor %q: %w", m.path, m.files[t.File].Name, datafile.Clip(t.Name), datafile.ReadError("reading", err))
			}
		}
		return nil
	}
	of := m.tensors[wants[0].Tensor].table
	if err := m.readTable(ctx, m.tables[of], wants); err != nil {
		return fmt.Errorf("model: %s: %w", m.path, err)
	}
	if !m.packed.Tables[of].Delta {
		return nil
	}
	below, scratch := make([]Want, len(wants)), make([][]byte, len(wants))
	for i, w := range wants {
		scratch[i] = make([]byte, len(w.Into))
		below[i] = Want{Tensor: m.based[w.Tensor], At: w.At, Into: scratch[i]}
		if below[i].Tensor < 0 {
			return fmt.Errorf("model: %s: tensor %q must be in the base, too", m.path, datafile.Clip(m.tensors[w.Tensor].Name))
		}
	}
	if err := m.base.Read(ctx, below); err != nil {
		return err
	}
	for i, w := range wants {
		subtle.XORBytes(w.Into, w.Into, scratch[i])
	}
	return nil
}

// readTable decodes the rows that the parts, which ascend, lie in.
func (m *Model) readTable(ctx context.Context, t *pages.Table, wants []Want) error {
	rowBytes := int64(t.Manifest().RowBytes)
	begin := func(w *Want) int64 { return m.tensors[w.Tensor].at + w.At }
	var rows []int64
	for i := range wants {
		from, to := begin(&wants[i])/rowBytes, (begin(&wants[i])+int64(len(wants[i].Into))-1)/rowBytes
		for row := from; row <= to; row++ {
			if len(rows) == 0 || rows[len(rows)-1] < row {
				rows = append(rows, row)
			}
		}
	}
	buffers := sync.Pool{New: func() any { b := make([]byte, rowBytes); return &b }}
	var mu sync.Mutex
	var fault error
	decode := func(row int64, stored []byte, compressed bool) error {
		at := row * rowBytes
		// The first part that ends behind the row's first byte.
		i, _ := slices.BinarySearchFunc(wants, at, func(w Want, at int64) int { return cmp.Compare(begin(&w)+int64(len(w.Into))-1, at) })
		if w := &wants[i]; begin(w) <= at && begin(w)+int64(len(w.Into)) >= at+rowBytes {
			return t.Decode(w.Into[at-begin(w):][:rowBytes], stored, compressed)
		}
		p := buffers.Get().(*[]byte)
		defer buffers.Put(p)
		if err := t.Decode(*p, stored, compressed); err != nil {
			return err
		}
		for ; i < len(wants) && begin(&wants[i]) < at+rowBytes; i++ {
			w := &wants[i]
			if b := begin(w); b >= at {
				copy(w.Into, (*p)[b-at:])
			} else if at-b < int64(len(w.Into)) {
				copy(w.Into[at-b:], *p)
			}
		}
		return nil
	}
	t.ReadRows(ctx, rows, func(i int, stored []byte, compressed bool, err error) {
		if err == nil {
			if err = decode(rows[i], stored, compressed); err != nil {
				err = fmt.Errorf("row %d: %w", rows[i], err)
			}
		}
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			if fault == nil {
				fault = err
			}
		}
	})
	return fault
}

// sums returns the SHA-256 of every tensor.
func (m *Model) sums(ctx context.Context, progress func(bytes int64)) ([]Hash, error) {
	sums := make([]Hash, len(m.tensors))
	var mu sync.Mutex
	done, next := int64(0), 0
	order := make([]int, len(m.tensors))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { // as they lie
		x, y := &m.tensors[a], &m.tensors[b]
		return cmp.Or(cmp.Compare(m.place(x), m.place(y)), cmp.Compare(x.at, y.at))
	})
	// take returns tensors to read at once: short ones lie in the same pages.
	take := func() (some []int, bytes int64) {
		mu.Lock()
		defer mu.Unlock()
		for next < len(order) && (bytes == 0 || bytes+m.tensors[order[next]].Bytes() <= batchBytes/2) {
			some, bytes = append(some, order[next]), bytes+m.tensors[order[next]].Bytes()
			next++
		}
		return some, bytes
	}
	one := func(some []int, buffer []byte) error {
		wants, at := []Want(nil), 0
		for _, i := range some {
			t := &m.tensors[i]
			if t.Bytes() > int64(len(buffer)-at) { // a long one, alone
				h := sha256.New()
				for from := int64(0); from < t.Bytes(); {
					part := buffer[:min(int64(len(buffer)), t.Bytes()-from)]
					if err := m.Read(ctx, []Want{{i, from, part}}); err != nil {
						return err
					}
					h.Write(part)
					from += int64(len(part))
				}
				sums[i] = Hash(h.Sum(nil))
				continue
			}
			wants = append(wants, Want{i, 0, buffer[at:][:t.Bytes()]})
			at += int(t.Bytes())
		}
		if err := m.Read(ctx, wants); err != nil {
			return err
		}
		for _, w := range wants {
			sums[w.Tensor] = sha256.Sum256(w.Into)
		}
		return nil
	}
	var group sync.WaitGroup
	faults := make([]error, min(8, runtime.GOMAXPROCS(0)))
	for worker := range faults {
		group.Go(func() {
			buffer := make([]byte, batchBytes/2)
			for {
				some, bytes := take()
				if len(some) == 0 {
					return
				}
				if faults[worker] = one(some, buffer); faults[worker] != nil {
					return
				}
				mu.Lock()
				if done += bytes; progress != nil {
					progress(done)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return sums, errors.Join(faults...)
}

// Place says where a tensor lies whose rows can be read from its table: first byte in the rows of the table. Table is -1 for one of no bytes.
type Place struct {
	Table    int   `json:"table"`
	At       int64 `json:"at"`
	RowBytes int   `json:"row_bytes"`
}

// Places returns the folders of the tables of a packed model, and where each tensor lies in them; nothing if the model is not packed or has a base.
func (m *Model) Places() (folders []string, places []Place) {
	if m.packed == nil || m.base != nil {
		return nil, nil
	}
	for i := range m.tables {
		folders = append(folders, m.tableFolder(i))
	}
	for _, t := range m.tensors {
		p := Place{Table: -1}
		if t.Bytes() > 0 {
			p = Place{t.table, t.at, m.packed.Tables[t.table].RowBytes}
		}
		places = append(places, p)
	}
	return folders, places
}
