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

// Create makes a trace. The format is what the name ends in, if Options do not say; .gz and .zst compress it. The file is
// made beside path and takes its name when Close has succeeded.
func Create(path string, o Options) (Writer, error) {
	f := byName(path)
	if o.Format != "" {
		var err error
		if f, err = lookup(o.Format); err != nil {
			return nil, err
		}
	}
	if f == nil {
		return nil, fmt.Errorf("trace: %s: %w: the name must end like one of %s, or a format be given", path, ErrFormat, endings())
	}
	if f.encode == nil {
		return nil, fmt.Errorf("trace: %s: %w: %s cannot be written", path, ErrFormat, f.name)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a device must not be replaced by a file
		return nil, fmt.Errorf("trace: %s: must be a file, or not exist: it is of type %v", path, info.Mode().Type())
	}
	out, err := newOutput(path)
	if err != nil {
		return nil, err
	}
	w := &writer{out: out, format: f}
	if w.encoder, err = f.encode(out); err != nil {
		w.err = out.fault(err)
		return nil, w.Close()
	}
	return w, nil
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

// writer is a trace being made.
type writer struct {
	out     *output
	format  *format
	encoder encoder
	err     error
	closed  bool
}

// Write implements Writer.
func (w *writer) Write(requests []Request) error {
	if w.err == nil && w.closed {
		return fmt.Errorf("trace: %s: write after Close", w.out.path)
	}
	if w.err == nil {
		if !w.format.keeps.Ops {
			for _, r := range requests {
				if r.Op != Get {
					w.err = w.out.fault(fmt.Errorf("%w: %s cannot hold a %v", ErrFormat, w.format.name, r.Op))
					return w.err
				}
			}
		}
		if err := w.encoder.encode(requests); err != nil {
			w.err = w.out.fault(err)
		}
	}
	return w.err
}

// Close implements Writer.
func (w *writer) Close() error {
	if w.closed {
		return w.err
	}
	w.closed = true
	if w.err == nil {
		err := w.encoder.end()
		if err == nil {
			err = w.out.finish()
		}
		if err != nil {
			w.err = w.out.fault(err)
		}
	}
	if w.err != nil {
		w.out.discard()
	}
	return w.err
}

// Discard implements Writer.
func (w *writer) Discard() {
	if !w.closed {
		w.closed = true
		w.out.discard()
	}
}

// output is the file of a trace being made.
type output struct {
	path  string
	files []*os.File // temporary; the first is what becomes path
	w     *bufio.Writer
	pack  io.WriteCloser // between w and the file; nil: none
	text  []byte         // scratch
}

func newOutput(path string) (*output, error) {
	o := &output{path: path}
	f, err := o.temporary()
	if err != nil {
		return nil, err
	}
	var to io.Writer = f
	switch name := strings.ToLower(path); {
	case strings.HasSuffix(name, ".gz"):
		o.pack = gzip.NewWriter(f)
	case strings.HasSuffix(name, ".zst"), strings.HasSuffix(name, ".zstd"):
		if o.pack, err = zstd.NewWriter(f, zstd.WithEncoderConcurrency(1)); err != nil {
			o.discard()
			return nil, o.fault(err)
		}
	}
	if o.pack != nil {
		to = o.pack
	}
	o.w = bufio.NewWriterSize(to, packed.BufferBytes)
	return o, nil
}

// temporary returns a new file beside path.
func (o *output) temporary() (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(o.path), "."+filepath.Base(o.path)+".*")
	if err != nil {
		return nil, o.fault(err)
	}
	o.files = append(o.files, f)
	return f, nil
}

// plain returns a file for uncompressed data, which adopt makes part of the output.
func (o *output) plain() (*os.File, error) {
	if o.pack == nil {
		return o.files[0], nil
	}
	return o.temporary()
}

// adopt appends a plain file to the output.
func (o *output) adopt(f *os.File) error {
	if f == o.files[0] {
		return nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(o.w, f)
	return err
}

// finish completes the file and gives it its name.
func (o *output) finish() error {
	if err := o.w.Flush(); err != nil {
		return err
	}
	if o.pack != nil {
		if err := o.pack.Close(); err != nil {
			return err
		}
	}
	f := o.files[0]
	if err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), o.path); err != nil {
		return err
	}
	o.files = o.files[1:]
	o.discard()
	return nil
}

// discard removes the temporary files.
func (o *output) discard() {
	for _, f := range o.files {
		f.Close()
		os.Remove(f.Name())
	}
	o.files = nil
}

// fault names the file.
func (o *output) fault(err error) error { return fmt.Errorf("trace: %s: %w", o.path, err) }
