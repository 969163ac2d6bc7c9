package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/datafile"
)

// Entry is a tensor of a file: what its header says.
type Entry struct {
	Name   string
	Stored string     // the element type's name in the file
	DType  dtype.Type // Invalid for one that package dtype does not have
	Shape  []int
	From   int64 // first byte in the data, and the one behind the last
	To     int64
}

// Header is what a file begins with. Text is the header as it is, without its length. Entries are in its order.
type Header struct {
	Text    []byte
	Entries []Entry
	Data    int64 // first byte of the data in the file
}

// Bytes returns what the file begins with: the header's length and the header.
func (h *Header) Bytes() []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(h.Text))), h.Text...)
}

// List opens a file and reads and checks its header: see the package comment. The caller closes the file.
func List(path string) (*Header, *os.File, error) {
	f, size, err := datafile.Open(path)
	if err != nil {
		return nil, nil, inFile(path, err)
	}
	h, err := list(f, size)
	if err != nil {
		f.Close()
		return nil, nil, inFile(path, err)
	}
	return h, f, nil
}

func list(f io.ReaderAt, size int64) (*Header, error) {
	tensors, data, err := readHeader(f, size)
	if err != nil {
		return nil, err
	}
	h := &Header{Text: make([]byte, data-prefixBytes), Data: data}
	if _, err := f.ReadAt(h.Text, prefixBytes); err != nil {
		return nil, datafile.ReadError("reading the header", err)
	}
	h.Entries = entries(tensors)
	return h, nil
}

// ParseHeader checks the text of a header, without its length.
func ParseHeader(text []byte) (*Header, error) {
	if len(text) < 2 || len(text) > maxHeaderBytes {
		return nil, fmt.Errorf("safetensors: header (%d bytes) must have 2 to %d", len(text), maxHeaderBytes)
	}
	tensors, err := parseHeader(text)
	if err == nil {
		end := int64(0)
		for _, t := range tensors {
			end = max(end, t.to)
		}
		err = checkCover(tensors, end)
	}
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return &Header{Text: text, Entries: entries(tensors), Data: prefixBytes + int64(len(text))}, nil
}

func entries(tensors []tensor) []Entry {
	all := make([]Entry, len(tensors))
	for i, t := range tensors {
		all[i] = Entry{t.name, t.stored, t.dtype, t.shape, t.from, t.to}
	}
	return all
}

// Metadata returns what the header has under "__metadata__", nil if there is none.
func (h *Header) Metadata() (map[string]string, error) {
	var top struct {
		Metadata map[string]string `json:"__metadata__"`
	}
	err := json.Unmarshal(h.Text, &top)
	return top.Metadata, err
}

// ParseIndex returns in which file each tensor lies, by the text of an index: see [SplitCheckpoint].
func ParseIndex(text []byte) (map[string]string, error) {
	p := &places{of: map[string]string{}}
	err := p.parseIndex("", text)
	return p.of, err
}
