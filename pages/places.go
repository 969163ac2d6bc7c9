package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tensorcache/tensorcache/internal/directio"
)

// A generation of page files can have pages of the one before: its folder has links to their files, and a file of places says where pages lie. Format:
// docs/format/pages.md.
const (
	placesFile   = "places"
	placesMagic  = "TCPLACE\x01"
	placesHeader = 12
	extentBytes  = 12
	// maxShared bounds the page files of a generation that the next one has links to, because readers open all of them.
	maxShared = 128
)

// extent is consecutive pages that lie in one file, each behind the one before.
type extent struct{ pages, file, block uint32 }

// placeList collects where pages lie, in ascending order.
type placeList struct {
	extents []extent
	end     place // behind the last page
}

// add appends the next page.
func (l *placeList) add(p place, length int) {
	if n := len(l.extents); n > 0 && l.end == p {
		l.extents[n-1].pages++
	} else {
		l.extents = append(l.extents, extent{1, uint32(p.file), p.block})
	}
	l.end = place{p.file, p.block + uint32(directio.Blocks(length))}
}

// files says which files have pages.
func (l *placeList) files() map[int]bool {
	used := map[int]bool{}
	for _, e := range l.extents {
		used[int(e.file)] = true
	}
	return used
}

func (l *placeList) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte(placesMagic), uint32(len(l.extents)))
	for _, e := range l.extents {
		b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, e.pages), e.file), e.block)
	}
	return le.AppendUint32(b, checksum(b))
}

// parsePlaces returns the places of an index's pages.
func parsePlaces(b []byte, x *index) ([]place, error) {
	le := binary.LittleEndian
	if len(b) < placesHeader+4 || string(b[:len(placesMagic)-1]) != placesMagic[:len(placesMagic)-1] {
		return nil, errors.New("pages: places: not a file of places")
	}
	if b[7] != placesMagic[7] {
		return nil, fmt.Errorf("pages: places: version (%d) must be %d", b[7], placesMagic[7])
	}
	body := b[placesHeader : len(b)-4]
	if n := int64(le.Uint32(b[8:])); int64(len(body)) != n*extentBytes || checksum(b[:len(b)-4]) != le.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("pages: places: %d bytes of %d extents: wrong length or checksum", len(b), n)
	}
	places := make([]place, 0, len(x.pages))
	for ; len(body) > 0; body = body[extentBytes:] {
		n, file, at := int64(le.Uint32(body)), le.Uint32(body[4:]), int64(le.Uint32(body[8:]))
		if n < 1 || n > int64(len(x.pages)-len(places)) || file >= maxFiles {
			return nil, fmt.Errorf("pages: places: extent of %d pages in file %d is not possible", n, file)
		}
		for range n {
			if at >= 1<<32 {
				return nil, fmt.Errorf("pages: places: block (%d) must be below 2^32", at)
			}
			places = append(places, place{uint16(file), uint32(at)})
			at += int64(directio.Blocks(x.length(uint32(len(places) - 1))))
		}
	}
	if len(places) != len(x.pages) {
		return nil, fmt.Errorf("pages: places: pages (%d) must be %d", len(places), len(x.pages))
	}
	return places, nil
}

// readPlaces returns where the pages of a generation lie.
func readPlaces(folder string, x *index) ([]place, error) {
	b, err := readSmall(filepath.Join(folder, placesFile), placesHeader+4+extentBytes*int64(len(x.pages)))
	if err == nil {
		places, err := parsePlaces(b, x)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		return places, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var p placer // one after the other
	places := make([]place, len(x.pages))
	for i := range places {
		file, offset := p.place(x.length(uint32(i)))
		if file >= maxFiles {
			return nil, fmt.Errorf("pages: %s: files must be at most %d", folder, maxFiles)
		}
		places[i] = place{uint16(file), uint32(offset / block)}
	}
	return places, nil
}

// sharer is a Writer whose generation can have pages of the one before, where they are.
type sharer interface {
	Writer
	// share begins a generation that has pages of a store, and reports whether it can. changed is the bytes of the store's pages that it will not have.
	share(from Store, changed int64) (bool, error)
	// keepPages takes pages of the store from number old on for those from number first on, as WritePages takes new ones.
	keepPages(first, old uint32, n int) error
}

var link = os.Link // tests have one that fails

// share implements sharer. The files of a generation may have half as many bytes again as its pages; beyond that all are written anew.
func (w *FileWriter) share(from Store, changed int64) (bool, error) {
	f, ok := from.(*Files)
	if !ok || f.dir != w.dir || f.manifest.Generation != w.committed || w.begun || len(f.files) > maxFiles/2 {
		return false, nil
	}
	live, all, shared := int64(0), int64(0), 0
	for _, p := range f.index.pages {
		live += int64(directio.Blocks(int(p.length))) * block
	}
	used := map[int]bool{}
	for _, p := range f.places {
		used[int(p.file)] = true
	}
	for i := range used {
		if f.files[i] == nil {
			return false, nil
		}
		info, err := f.files[i].Stat()
		if err != nil {
			return false, err
		}
		all += info.Size()
		shared++
	}
	if all+changed-live > live/2 || shared > maxShared {
		return false, nil
	}
	if err := w.start(); err != nil {
		return false, err
	}
	for i := range used {
		if err := link(pageFile(f.folder, i), pageFile(w.folder, i)); err != nil { // not every file system has links
			w.begun = false
			return false, os.RemoveAll(w.folder)
		}
	}
	w.from, w.at = f, placer{file: len(f.files)}
	return true, nil
}

// keepPages implements sharer.
func (w *FileWriter) keepPages(first, old uint32, n int) error {
	if first != w.next {
		return fmt.Errorf("pages: %s: first page (%d) must be %d", w.dir, first, w.next)
	}
	for i := range n {
		page := old + uint32(i)
		w.places.add(w.from.places[page], w.from.index.length(page))
	}
	w.next += uint32(n)
	return nil
}

// commitPlaces writes where pages lie, and gives up files of the generation before that none lies in.
func (w *FileWriter) commitPlaces() error {
	used := w.places.files()
	for i := range w.from.files {
		if !used[i] {
			if err := os.Remove(pageFile(w.folder, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return writePart(filepath.Join(w.folder, placesFile), w.places.encode())
}

// placedFiles returns how many files there are up to the last one that has pages, and which have.
func placedFiles(places []place) (used []bool) {
	for _, p := range places {
		if n := int(p.file) + 1; n > len(used) {
			used = append(used, make([]bool, n-len(used))...)
		}
		used[p.file] = true
	}
	return slices.Clip(used)
}
