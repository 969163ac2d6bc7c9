package pages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/internal/filelock"
)

// restoreManifest writes the manifest of a directory that has lost its own, or has it damaged, from a store with the same contents; fault is the error of
// reading it. Nothing else is written and nothing removed. The generation is that of the folder whose index is the store's: an index has a checksum of each page, so the
// folder is of the same contents, and pages that it lacks or has damaged can be read from the store. A directory that has no such folder, and no other, gets a
// manifest whose pages all come from the store.
//
// A folder with another index may have merged updates that the store lacks, and one without an index may be of such a generation. So both are an error, but for a
// folder without an index, or of an interrupted pack, beside one that is the store's: a generation that was not committed. Errors wrap fault.
func restoreManifest(dir string, behind Store, fault error) error {
	if err := restorable(dir); err != nil {
		return errors.Join(fault, err)
	}
	var lock *os.File
	for begun := time.Now(); ; time.Sleep(restoreWait / 100) {
		var err error
		if lock, err = lockDir(dir); err == nil {
			break
		}
		if _, again := ReadManifest(dir); again == nil { // another process has restored it
			return nil
		}
		if !filelock.Held(err) || time.Since(begun) > restoreWait {
			return errors.Join(fault, err)
		}
	}
	defer lock.Close()
	if _, again := ReadManifest(dir); again == nil {
		return nil
	}
	if err := restorable(dir); err != nil { // what came meanwhile
		return errors.Join(fault, err)
	}
	generation, err := generationLike(dir, behind.Manifest())
	if err == nil {
		m := *behind.Manifest()
		m.Generation = generation
		var text []byte
		if text, err = m.MarshalBinary(); err == nil {
			err = writeManifest(filepath.Join(dir, manifestFile), text)
		}
	}
	if err != nil {
		return errors.Join(fault, fmt.Errorf("pages: %s: its manifest cannot be restored from %s: %w", dir, behind.Name(), err))
	}
	return nil
}

// restoreWait is how long a process that restores a manifest waits for another one that writes to the directory.
const restoreWait = 2 * time.Second

// restorable returns an error for a directory that never had a table, such as that of a drive which is not mounted, and for a manifest that is not damaged but
// written by a later version, or no file.
func restorable(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == manifestFile || e.Name() == lockFile || generationOf(e.Name()) > 0
	}) {
		return fmt.Errorf("pages: %s: has had no table: its manifest is not restored", dir)
	}
	b, err := readSmall(filepath.Join(dir, manifestFile), maxDamaged)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(b) >= len(manifestMagic) && string(b[:7]) == manifestMagic[:7] && b[7] != manifestMagic[7]:
		return fmt.Errorf("pages: %s: a manifest of another version is not replaced", dir)
	}
	return nil
}

// maxDamaged bounds what is read of a damaged manifest.
const maxDamaged = 64 << 20

// generationLike returns the generation in a directory that has the contents of a manifest; 1 if the directory has no generation.
func generationLike(dir string, m *Manifest) (like uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var unknown []string // folders without an index
	packing := ""        // that of a pack that was interrupted
	for _, e := range entries {
		g := generationOf(e.Name())
		if g == 0 {
			continue
		}
		folder := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(folder, checkpointFile)); err == nil {
			packing = folder
			continue
		}
		has, err := hasParts(folder, m)
		if err != nil {
			return 0, fmt.Errorf("%s has other contents, which may be updates that have not reached the other store: if they have, or are not wanted, remove it: %w", folder, err)
		}
		if has {
			like = max(like, g)
		} else {
			unknown = append(unknown, folder)
		}
	}
	switch {
	case like > 0:
		return like, nil
	case len(unknown) > 0:
		return 0, fmt.Errorf("%s has no index, and may have updates that have not reached the other store: if they have, or are not wanted, remove it", unknown[0])
	case packing != "":
		return 0, fmt.Errorf("%s is not complete: run pack again with the same arguments", packing)
	}
	return 1, nil
}

// hasParts reports whether a generation's folder has the index of a manifest. Another index, or another part, is an error.
func hasParts(folder string, m *Manifest) (bool, error) {
	has := false
	for p := range PartCount {
		b, err := readSmall(filepath.Join(folder, p.String()), max(m.Parts[p].Bytes, 1))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = m.Check(p, b)
		}
		if err != nil {
			return false, err
		}
		has = has || p == PartIndex
	}
	return has, nil
}
