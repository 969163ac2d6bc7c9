// Package statefolder keeps memory of a process in files of a folder in memory (tmpfs), where the next process takes it over.
//
// One process at a time has the folder, by a lock that ends with it. Its memory has roles, such as "overlay". A manifest says which file has which role; it is replaced as a
// whole by Commit, so that whoever comes next finds the files of before or those of after. Files of this package that no manifest names are removed; those of others stay.
//
// Memory that other processes map outlives them all: a process that has mapped the memory of an earlier owner reads on. Each of them also maps a file of its own (Reader), which is
// locked through the descriptor that its mapping holds open. So the system releases the lock when the process unmaps it or ends, however it ends, and the next owner knows whether memory that it
// has taken over is still read as the earlier one left it: see Wait.
package statefolder

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/filelock"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// ErrHeld is wrapped by errors of changes that another process holds back.
var ErrHeld = errors.New("cache: a client holds back changes")

// ErrLost is wrapped by errors that say why nothing can be taken over.
var ErrLost = errors.New("statefolder: nothing to take over")

const (
	lockName     = "lock"
	manifestName = "manifest"
	readerPrefix = "reader."
	// lockWait is how long Open waits for a process that is ending: the system takes a while to unmap its memory.
	lockWait = 10 * time.Second
	// manifestVersion is the version of the manifest.
	manifestVersion = 1
)

// Folder is a folder of a process. All methods but Open are safe for concurrent use. Those of a nil Folder find nothing.
type Folder struct {
	path string
	lock *os.File

	mu struct {
		sync.Mutex
		old *manifest // of the process before; nil: none
		// Processes that read memory of earlier owners: whether there are none any more, since when Wait has waited for them, and who they are. Held returns errors after
		// patience.
		gone     bool
		since    time.Time
		names    []string
		patience time.Duration

		generation uint64 // of processes that have had the folder: greater than that of any file there
		last       uint64 // number of the last file
		files      map[string]file
		pending    map[string]file
		data       func() (json.RawMessage, error)
	}
}

// file is memory with a role.
type file struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	taken bool   // it is still what the process before has left
}

type manifest struct {
	Version    int             `json:"version"`
	Generation uint64          `json:"generation"` // of processes that have had the folder
	Files      map[string]file `json:"files"`      // by role
	Data       json.RawMessage `json:"data"`
}

// Open takes a folder, which it makes unless it exists. It must be on a tmpfs, and this user's alone. The error of a folder that another process has says so.
func Open(path string) (_ *Folder, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("statefolder: folder: %w", err)
	}
	if err := check(path); err != nil {
		return nil, err
	}
	f := &Folder{path: path}
	f.mu.patience, f.mu.generation = 10*time.Second, 1
	f.mu.files, f.mu.pending = map[string]file{}, map[string]file{}
	for end := time.Now().Add(lockWait); ; {
		if f.lock, err = filelock.Try(f.file(lockName)); err == nil {
			break
		}
		if !filelock.Held(err) {
			return nil, fmt.Errorf("statefolder: folder: %w", err)
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("statefolder: folder (%s) is in use by another process: one at a time can have it", path)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return f, nil
}

// Remove removes a folder that no process has. What processes map of it is given back when they unmap it.
func Remove(path string) {
	if path == "" {
		return
	}
	if lock, err := filelock.Try(filepath.Join(path, lockName)); err == nil {
		os.RemoveAll(path)
		lock.Close()
	}
}

// file returns the path of a file.
func (f *Folder) file(name string) string { return filepath.Join(f.path, name) }

// String returns the folder's path.
func (f *Folder) String() string { return f.path }

// Close gives the folder to the next process, with what the last Commit named.
func (f *Folder) Close() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for role := range f.mu.pending {
		f.abandonLocked(role)
	}
	return f.lock.Close()
}

// Load returns what the last Commit of the process before was given, and removes what that process or a start that failed has left besides. Call it before anything is allocated. The
// error wraps ErrLost if there is nothing to take over, as the manifest is missing, damaged or of another version; after another error the folder is as it was.
func (f *Folder) Load() (json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, lost := f.readManifest()
	if lost != nil && !errors.Is(lost, ErrLost) {
		return nil, lost
	}
	named, last := map[string]file{}, uint64(0)
	if m != nil {
		named, last = m.Files, m.Generation // also of another version: they stay until Begin
	}
	found, err := f.sweep(named)
	if err != nil {
		return nil, err
	}
	f.mu.generation = max(last, found) + 1
	if lost != nil {
		return nil, lost
	}
	f.mu.old = m
	return m.Data, nil
}

// ownFile matches names of nameLocked: role, generation and number, and of a reader also whose it is.
var ownFile = regexp.MustCompile(`^([a-z0-9.-]+?)\.([0-9]+)-[0-9]+(\..*)?$`)

// sweep removes the package's files but those in keep and those of readers, and returns the greatest generation among all. A process that maps a file keeps its memory. Files that others
// have made stay.
func (f *Folder) sweep(keep map[string]file) (last uint64, err error) {
	names := map[string]bool{}
	for _, one := range keep {
		names[one.Name] = true
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return 0, fmt.Errorf("statefolder: folder: %w", err)
	}
	for _, e := range entries {
		of := ownFile.FindStringSubmatch(e.Name())
		reader := strings.HasPrefix(e.Name(), readerPrefix)
		if of == nil || !e.Type().IsRegular() || of[3] != "" && !reader {
			continue
		}
		generation, err := strconv.ParseUint(of[2], 10, 63)
		if err != nil {
			continue
		}
		last = max(last, generation)
		if !names[e.Name()] && !reader {
			if err := os.Remove(f.file(e.Name())); err != nil {
				return 0, fmt.Errorf("statefolder: file that an earlier process has left: %w", err)
			}
		}
	}
	return last, nil
}

// readManifest reads the manifest, which it returns also if the error is that it is of another version.
func (f *Folder) readManifest() (*manifest, error) {
	raw, err := os.ReadFile(f.file(manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has no manifest", ErrLost, f.path)
	}
	if err != nil {
		return nil, fmt.Errorf("statefolder: manifest: %w", err)
	}
	sum, body, _ := bytes.Cut(raw, []byte("\n"))
	if found := sha256.Sum256(body); string(sum) != hex.EncodeToString(found[:]) {
		return nil, fmt.Errorf("%w: the checksum of %s is wrong", ErrLost, f.file(manifestName))
	}
	m := new(manifest)
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLost, f.file(manifestName), err)
	}
	if m.Version != manifestVersion {
		return m, fmt.Errorf("%w: %s has version %d, and this program %d", ErrLost, f.file(manifestName), m.Version, manifestVersion)
	}
	return m, nil
}

// Drop forgets the memory of the process before: nothing of it is taken over, so nobody who reads it is waited for.
func (f *Folder) Drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.gone = true
	if f.mu.old != nil {
		f.mu.old.Files = nil
	}
}

// Take returns memory of the process before as it has left it. The error, if there is none of that size, wraps ErrLost.
func (f *Folder) Take(d device.Device, role string, bytes int64, what string) (device.Buffer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takeLocked(d, role, bytes, what, false)
}

// TakeAny is Take for memory of any size.
func (f *Folder) TakeAny(d device.Device, role, what string) (device.Buffer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.old == nil {
		return device.Buffer{}, fmt.Errorf("%w: no %s", ErrLost, what)
	}
	return f.takeLocked(d, role, f.mu.old.Files[role].Bytes, what, false)
}

// Reuse is Take if there is such memory of about this size, whatever it holds, and else Alloc.
func (f *Folder) Reuse(d device.Device, role string, bytes int64, what string) (device.Buffer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.old != nil {
		if was := f.mu.old.Files[role].Bytes; was <= bytes+bytes/2 && bytes <= was+was/2 {
			b, err := f.takeLocked(d, role, bytes, what, true)
			if !errors.Is(err, ErrLost) {
				return b, err
			}
		}
	}
	return f.allocLocked(d, role, bytes, what)
}

// takeLocked is Take. With another the memory may have had another size.
func (f *Folder) takeLocked(d device.Device, role string, bytes int64, what string, another bool) (device.Buffer, error) {
	var none device.Buffer
	if f.mu.old == nil {
		return none, fmt.Errorf("%w: no %s", ErrLost, what)
	}
	was, ok := f.mu.old.Files[role]
	if !ok || was.Bytes != bytes && !another || bytes <= 0 || was.Name != filepath.Base(was.Name) {
		return none, fmt.Errorf("%w: %s (%d bytes) must be the %d bytes of %s", ErrLost, what, was.Bytes, bytes, role)
	}
	info, err := os.Lstat(f.file(was.Name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return none, fmt.Errorf("statefolder: %s: %w", what, err)
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() < was.Bytes {
		return none, fmt.Errorf("%w: %s: file %s must be there, of at least %d bytes", ErrLost, what, was.Name, was.Bytes)
	}
	b, err := f.mapped(d, was.Name, false, bytes, what, nil)
	if err == nil {
		f.mu.pending[role] = file{was.Name, bytes, true}
		delete(f.mu.old.Files, role)
	}
	return b, err
}

// Alloc returns memory, all zeros, in a new file. It has the role from the next Commit on; until then what was taken in that role stays for the next process, should this one be killed.
func (f *Folder) Alloc(d device.Device, role string, bytes int64, what string) (device.Buffer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.allocLocked(d, role, bytes, what)
}

func (f *Folder) allocLocked(d device.Device, role string, bytes int64, what string) (device.Buffer, error) {
	f.abandonLocked(role)
	name := f.nameLocked(role)
	b, err := f.mapped(d, name, true, bytes, what, nil)
	if err == nil {
		f.mu.pending[role] = file{name, bytes, false}
	}
	return b, err
}

// nameLocked returns a name that no file of the folder has had.
func (f *Folder) nameLocked(role string) string {
	f.mu.last++
	return fmt.Sprintf("%s.%d-%d", role, f.mu.generation, f.mu.last)
}

// mapped maps a file, which must not be there before if it is to be a fresh one, all zeros. lock, if not nil, is called with its descriptor before.
func (f *Folder) mapped(d device.Device, name string, fresh bool, bytes int64, what string, lock func(*os.File) error) (b device.Buffer, err error) {
	s, err := device.SharerOf(d)
	if err != nil {
		return b, err
	}
	memory, made, err := numa.Named(f.file(name), max(bytes, 1))
	if err != nil {
		return b, fmt.Errorf("statefolder: %s: %w", what, err)
	}
	defer memory.Close()
	if made != fresh {
		err = fmt.Errorf("file %s: another process makes or removes files of the folder", name)
	}
	if err == nil && lock != nil {
		err = lock(memory)
	}
	if err == nil {
		b, err = s.ImportHost(memory, bytes, true, what)
	}
	if err == nil {
		if err = numa.Reserve(memory, max(bytes, 1)); err != nil {
			d.Free(b)
			free, total := room(f.path)
			err = fmt.Errorf("%s does not fit in %s (%s, of which %s are free): mount it with a larger size: %w", humanize.IBytes(uint64(bytes)), f.path, humanize.IBytes(total), humanize.IBytes(free), err)
		}
	}
	if err != nil {
		if made {
			os.Remove(f.file(name))
		}
		return device.Buffer{}, fmt.Errorf("statefolder: %s: %w", what, err)
	}
	return b, nil
}

// Abandon removes memory of a role that no Commit has named.
func (f *Folder) Abandon(role string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.abandonLocked(role)
}

func (f *Folder) abandonLocked(role string) {
	if p, ok := f.mu.pending[role]; ok && !p.taken {
		os.Remove(f.file(p.Name))
	}
	delete(f.mu.pending, role)
}

// Discard removes what the process before has left in some roles, taken or not.
func (f *Folder) Discard(roles ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, role := range roles {
		for _, of := range []map[string]file{f.mu.pending, f.mu.old.Files} {
			if one, ok := of[role]; ok && one.Name == filepath.Base(one.Name) {
				os.Remove(f.file(one.Name))
			}
			delete(of, role)
		}
	}
}

// Begin makes what has been taken and allocated so far what the next process finds, and removes the package's other files. data returns what Load is to return, then and at each Commit later.
func (f *Folder) Begin(data func() (json.RawMessage, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.data = data
	if err := f.commitLocked(maps.Clone(f.mu.pending)); err != nil {
		return err
	}
	_, err := f.sweep(f.mu.files)
	return err
}

// Commit makes memory allocated since the last Commit what the next process finds in these roles. A nil Folder does nothing, and before Begin no process finds anything. change, if not
// nil, changes what Begin's data returns; undo is called if the commit fails. So no other commit has the new data with the old memory.
func (f *Folder) Commit(change func() (undo func()), roles ...string) (err error) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if change != nil {
		undo := change()
		defer func() {
			if err != nil {
				undo()
			}
		}()
	}
	if f.mu.data == nil {
		return nil
	}
	now := map[string]file{}
	for _, role := range roles {
		if p, ok := f.mu.pending[role]; ok {
			now[role] = p
		}
	}
	before := map[string]file{}
	for role := range now {
		before[role] = f.mu.files[role]
	}
	if err := f.commitLocked(now); err != nil {
		return err
	}
	for role, b := range before {
		if b.Name != "" && b.Name != f.mu.files[role].Name {
			os.Remove(f.file(b.Name))
		}
	}
	return nil
}

func (f *Folder) commitLocked(now map[string]file) error {
	files := maps.Clone(f.mu.files)
	maps.Copy(files, now)
	data, err := f.mu.data()
	if err != nil {
		return err
	}
	body, err := json.Marshal(&manifest{manifestVersion, f.mu.generation, files, data})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	next := f.file(manifestName + ".new")
	if err := os.WriteFile(next, append([]byte(hex.EncodeToString(sum[:])+"\n"), body...), 0o600); err != nil {
		return fmt.Errorf("statefolder: manifest: %w", err)
	}
	if err := os.Rename(next, f.file(manifestName)); err != nil {
		return fmt.Errorf("statefolder: manifest: %w", err)
	}
	f.mu.files = files
	for role := range now {
		delete(f.mu.pending, role)
	}
	return nil
}

// Reader returns memory for a process that is about to map memory of the folder: as long as it is mapped by any process, Wait of later owners waits. who says in errors whose it is.
func (f *Folder) Reader(d device.Device, who string, bytes int64, what string) (device.Buffer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookLocked()
	who = strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, who)
	return f.mapped(d, f.nameLocked("reader")+"."+strings.ToValidUTF8(who[:min(len(who), 150)], "_"), true, bytes, what, filelock.Lock)
}

// lookLocked removes the files of readers that have unmapped them, and returns who reads memory of earlier processes.
func (f *Folder) lookLocked() (earlier []string) {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return []string{err.Error()}
	}
	own := fmt.Sprintf("%s%d-", readerPrefix, f.mu.generation)
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, readerPrefix) {
			continue
		}
		memory, err := os.OpenFile(f.file(name), os.O_RDWR, 0)
		if err != nil {
			continue // it has just been removed
		}
		if filelock.Lock(memory) == nil {
			os.Remove(f.file(name))
		} else if !strings.HasPrefix(name, own) {
			who := strings.TrimPrefix(name, readerPrefix)
			_, who, _ = strings.Cut(who, ".")
			earlier = append(earlier, who)
		}
		memory.Close()
	}
	return earlier
}

// Settle removes the files of readers that have unmapped them.
func (f *Folder) Settle() {
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lookLocked()
	}
}

// waiting looks whether processes read memory of earlier owners.
func (f *Folder) waiting() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.gone {
		return false
	}
	if f.mu.names = f.lookLocked(); len(f.mu.names) == 0 {
		f.mu.gone = true
		return false
	}
	if f.mu.since.IsZero() {
		f.mu.since = time.Now()
	}
	return true
}

// Wait waits until no process reads the memory of earlier owners any more: they attach to this one, or end. Until then nothing that was taken over may be changed.
func (f *Folder) Wait(ctx context.Context) error {
	for pause := time.Millisecond; f.waiting(); pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil
}

// Waits says whether Wait would wait, as far as is known.
func (f *Folder) Waits() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.mu.gone
}

// Held returns an error that wraps ErrHeld and names who has kept Wait waiting for too long, nil if nobody has.
func (f *Folder) Held() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.gone || f.mu.since.IsZero() || time.Since(f.mu.since) < f.mu.patience {
		return nil
	}
	return fmt.Errorf("%w: %s still reads the memory of the owner before, for %v; it may be stopped, of another release, or hold a captured graph",
		ErrHeld, strings.Join(f.mu.names, ", "), time.Since(f.mu.since).Round(100*time.Millisecond))
}

// SetPatience sets after how long Held returns an error. Default 10 s.
func (f *Folder) SetPatience(d time.Duration) {
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.patience = d
	}
}
