package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/datafile"
	"github.com/tensorcache/tensorcache/internal/safetensors"
	"github.com/tensorcache/tensorcache/slab"
)

// Names in the directory of a packed model. None of them is one that a table of pages has.
const (
	manifestFile = "model.json"
	lockFile     = "model.lock"
	packingFile  = "packing.json" // while it is packed
	folderPrefix = "m"            // and the generation
)

const (
	format  = "tensorcache model"
	version = 1
	// packingMark is what packingFile begins with.
	packingMark = `{"key":"`
	// maxManifest is the most bytes of a manifest, which has the headers of all files.
	maxManifest = 1 << 30
	// maxDepth bounds how many deltas lie on each other.
	maxDepth = 1000
)

// Hash is a SHA-256. Its text is hexadecimal.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(h) {
		return fmt.Errorf("model: hash (%q) must be %d hexadecimal digits", datafile.Clip(string(text)), 2*len(h))
	}
	copy(h[:], b)
	return nil
}

// manifest is what model.json has: docs/format/model.md.
type manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Hash is that of the contents.
	Hash Hash `json:"hash"`
	// Generation says in which folder the tables lie. 0: the directory itself is the only table.
	Generation int       `json:"generation"`
	Base       *Base     `json:"base,omitempty"`
	Tables     []table   `json:"tables"`
	Files      []fileOf  `json:"files"`
	header     []*header // by file; nil for one without tensors
}

// Base is the model that a delta is of.
type Base struct {
	// Path is where it lay when the delta was packed, as seen from the folder that has the delta, if there is a way.
	Path string `json:"path"`
	Hash Hash   `json:"hash"`
	// Depth is the number of models below: 1 if the base is none of a delta itself.
	Depth int `json:"depth"`
}

// table is one table of pages. Its folder is its index.
type table struct {
	DType    string `json:"dtype"`
	RowBytes int    `json:"row_bytes"`
	Rows     int64  `json:"rows"`
	// Delta says that it holds differences from the base.
	Delta bool `json:"delta,omitempty"`
	// Generation is that of the table, where it can change: of a model that is a table.
	Generation uint64 `json:"generation,omitempty"`
}

// fileOf is one file. Text is the header of a .safetensors file, or all of another file.
type fileOf struct {
	Name    string     `json:"name"`
	Text    string     `json:"text"`
	Tensors []tensorOf `json:"tensors,omitempty"` // in the header's order
	Index   bool       `json:"index,omitempty"`
}

// tensorOf says where the bytes of a tensor lie. Tensors of equal bytes have equal ones.
type tensorOf struct {
	SHA256 Hash  `json:"sha256"`
	Table  int   `json:"table"`
	At     int64 `json:"at"` // first byte in the table's rows
}

type header = safetensors.Header

// hashOf returns the hash of contents: of the names and texts of files, and the hashes of their tensors.
func hashOf(files []fileOf) Hash {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%d %s %d %s %d\n", len(f.Name), f.Name, len(f.Text), f.Text, len(f.Tensors))
		for _, t := range f.Tensors {
			h.Write(t.SHA256[:])
		}
	}
	return Hash(h.Sum(nil))
}

// readManifest reads and checks the manifest of a directory. The error of a directory without one wraps fs.ErrNotExist.
func readManifest(dir string) (*manifest, error) {
	path := filepath.Join(dir, manifestFile)
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxManifest) {
		err = fmt.Errorf("must be a regular file of at most %d bytes", maxManifest)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, e := os.Stat(filepath.Join(dir, packingFile)); e == nil {
			return nil, fmt.Errorf("model: %s: the model is not complete: run pack again with the same arguments: %w", dir, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("model: %s: not a packed model: %w", dir, err)
	}
	m, err := parseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("model: %s: %w", path, err)
	}
	return m, nil
}

// parseManifest checks all that readers rely on.
func parseManifest(b []byte) (*manifest, error) {
	m := new(manifest)
	decode := json.NewDecoder(bytes.NewReader(b))
	decode.DisallowUnknownFields()
	if err := decode.Decode(m); err != nil {
		return nil, err
	}
	if m.Format != format || m.Version != version {
		return nil, fmt.Errorf("format (%q, version %d) must be %q, version %d", datafile.Clip(m.Format), m.Version, format, version)
	}
	if m.Generation < 0 || m.Generation == 0 && (len(m.Tables) != 1 || m.Base != nil) {
		return nil, fmt.Errorf("generation (%d) must be at least 1, or 0 of one table without a base", m.Generation)
	}
	if m.Base != nil && (m.Base.Depth < 1 || m.Base.Depth > maxDepth) {
		return nil, fmt.Errorf("depth (%d) must be 1 to %d", m.Base.Depth, maxDepth)
	}
	for i, t := range m.Tables {
		of, err := dtype.Parse(t.DType)
		if err != nil {
			return nil, fmt.Errorf("table %d: %w", i, err)
		}
		if t.RowBytes < 1 || t.RowBytes > slab.MaxRowBytes || t.RowBytes%of.Size() != 0 || t.Rows < 1 || t.Rows > 1<<50/int64(t.RowBytes) {
			return nil, fmt.Errorf("table %d: %d rows of %d bytes must be 1 or more of 1 to %d bytes, of whole elements", i, t.Rows, t.RowBytes, slab.MaxRowBytes)
		}
		if t.Delta && m.Base == nil {
			return nil, fmt.Errorf("table %d: a delta must have a base", i)
		}
	}
	seen := map[string]bool{}
	m.header = make([]*header, len(m.Files))
	for i, f := range m.Files {
		if f.Name == "" || f.Name == "." || f.Name == ".." || filepath.Base(f.Name) != f.Name || strings.ContainsAny(f.Name, "\x00/\\") || seen[f.Name] {
			return nil, fmt.Errorf("file (%q) must be a name without a folder, and no other file's", datafile.Clip(f.Name))
		}
		seen[f.Name] = true
		if f.Index {
			continue
		}
		var err error
		if m.header[i], err = safetensors.ParseHeader([]byte(f.Text)); err != nil {
			return nil, fmt.Errorf("file %q: %w", f.Name, err)
		}
		if len(m.header[i].Entries) != len(f.Tensors) {
			return nil, fmt.Errorf("file %q: tensors (%d) must be the %d of its header", f.Name, len(f.Tensors), len(m.header[i].Entries))
		}
		for k, e := range m.header[i].Entries {
			t, n := f.Tensors[k], e.To-e.From
			if n == 0 {
				continue
			}
			if t.Table < 0 || t.Table >= len(m.Tables) {
				return nil, fmt.Errorf("tensor %q: table (%d) must be below %d", datafile.Clip(e.Name), t.Table, len(m.Tables))
			}
			if all := m.Tables[t.Table].Rows * int64(m.Tables[t.Table].RowBytes); t.At < 0 || t.At > all || n > all-t.At {
				return nil, fmt.Errorf("tensor %q: %d bytes from %d on must lie in the %d of table %d", datafile.Clip(e.Name), n, t.At, all, t.Table)
			}
		}
	}
	if h := hashOf(m.Files); h != m.Hash {
		return nil, fmt.Errorf("hash of the contents (%v) must be %v: the manifest is damaged", h, m.Hash)
	}
	return m, nil
}
