package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/tensorcache/tensorcache/internal/packed"
)

// encoder writes one format.
type encoder interface {
	encode(requests []Request) error
	end() error
}

// Writer makes the file of a trace, from its requests in order.
type Writer struct {
	path    string
	files   []*os.File // temporary; the first is what becomes path
	w       *bufio.Writer
	pack    io.WriteCloser // between w and the file; nil: none
	text    []byte         // scratch
	format  *format
	encoder encoder
	err     error
	closed  bool
}

// Create makes a trace. The format is what the name ends in, if Options do not say; .gz and .zst compress it. The file is
// made beside path and takes its name when Close has succeeded.
func Create(path string, o Options) (*Writer, error) {
	w := &Writer{path: path, format: byName(path)}
	if o.Format != "" {
		var err error
		if w.format, err = lookup(o.Format); err != nil {
			return nil, err
		}
	}
	if w.format == nil {
		return nil, w.fault(fmt.Errorf("%w: the name must end like one of %s, or a format be given", ErrFormat, endings()))
	}
	if w.format.encode == nil {
		return nil, w.fault(fmt.Errorf("%w: %s cannot be written", ErrFormat, w.format.name))
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a device must not be replaced by a file
		return nil, w.fault(fmt.Errorf("must be a file, or not exist: it is of type %v", info.Mode().Type()))
	}
	err := w.open()
	if err == nil {
		w.encoder, err = w.format.encode(w)
	}
	if err != nil {
		w.Discard()
		return nil, w.fault(err)
	}
	return w, nil
}

// open makes the file.
func (w *Writer) open() error {
	f, err := w.temporary()
	if err != nil {
		return err
	}
	var to io.Writer = f
	switch name := strings.ToLower(w.path); {
	case strings.HasSuffix(name, ".gz"):
		w.pack = gzip.NewWriter(f)
	case strings.HasSuffix(name, ".zst"), strings.HasSuffix(name, ".zstd"):
		if w.pack, err = zstd.NewWriter(f, zstd.WithEncoderConcurrency(1)); err != nil {
			return err
		}
	}
	if w.pack != nil {
		to = w.pack
	}
	w.w = bufio.NewWriterSize(to, packed.BufferBytes)
	return nil
}

// endings lists the endings of names that formats which can be written go by.
func endings() string {
	var all []string
	for _, f := range formats {
		if f.encode != nil {
			all = append(all, f.endings...)
		}
	}
	return strings.Join(all, ", ")
}

// Write appends requests.
func (w *Writer) Write(requests []Request) error {
	if w.err == nil && w.closed {
		return w.fault(errors.New("write after Close"))
	}
	if w.err == nil {
		if !w.format.keeps.Ops {
			for _, r := range requests {
				if r.Op != Get {
					w.err = w.fault(fmt.Errorf("%w: %s cannot hold a %v", ErrFormat, w.format.name, r.Op))
					return w.err
				}
			}
		}
		if err := w.encoder.encode(requests); err != nil {
			w.err = w.fault(err)
		}
	}
	return w.err
}

// Close completes the file. After an error of Write it discards the file and returns that error.
func (w *Writer) Close() error {
	if w.closed {
		return w.err
	}
	if w.err == nil {
		err := w.encoder.end()
		if err == nil {
			err = w.finish()
		}
		if err != nil {
			w.err = w.fault(err)
		}
	}
	w.Discard()
	return w.err
}

// Discard removes the temporary files, so that the trace does not appear; after Close it does nothing.
func (w *Writer) Discard() {
	w.closed = true
	for _, f := range w.files {
		f.Close()
		os.Remove(f.Name())
	}
	w.files = nil
}

// temporary returns a new file beside path.
func (w *Writer) temporary() (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(w.path), "."+filepath.Base(w.path)+".*")
	if err != nil {
		return nil, err
	}
	w.files = append(w.files, f)
	return f, nil
}

// plain returns a file for uncompressed data, which adopt makes part of the output.
func (w *Writer) plain() (*os.File, error) {
	if w.pack == nil {
		return w.files[0], nil
	}
	return w.temporary()
}

// adopt appends a plain file to the output.
func (w *Writer) adopt(f *os.File) error {
	if f == w.files[0] {
		return nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(w.w, f)
	return err
}

// finish completes the file and gives it its name.
func (w *Writer) finish() error {
	if err := w.w.Flush(); err != nil {
		return err
	}
	if w.pack != nil {
		if err := w.pack.Close(); err != nil {
			return err
		}
	}
	f := w.files[0]
	if err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), w.path); err != nil {
		return err
	}
	w.files = w.files[1:]
	return nil
}

// fault names the file.
func (w *Writer) fault(err error) error { return fmt.Errorf("trace: %s: %w", w.path, err) }
