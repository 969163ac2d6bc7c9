package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// MachineExt is what names of files of machine code end in. Such a file is a tar archive in a Zstandard frame: the SHA-256 of the bundle that the code was
// compiled from, by the name of sumEntry, and the code of each module by its name.
const MachineExt = ".tar.zst"

const sumEntry = ".sha256"

// Machine returns a file of machine code, uncompressed. from is the bundle that the modules were compiled from.
func Machine(from []byte, modules map[string][]byte) ([]byte, error) {
	var file bytes.Buffer
	t := tar.NewWriter(&file)
	add := func(name string, content []byte) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err := t.Write(content)
		return err
	}
	if err := add(sumEntry, []byte(sumOf(from))); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if err := add(name, modules[name]); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	return file.Bytes(), nil
}

// UnpackMachine returns the modules of a file of machine code, by name. They share memory. It returns an error if they were not compiled from the bundle
// from.
func UnpackMachine(packed, from []byte) (map[string][]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	file, err := d.DecodeAll(packed, nil) // the frame says how long it is, so that this takes no more memory
	if err != nil {
		return nil, fmt.Errorf("bundle: machine code: %w", err)
	}
	modules := map[string][]byte{}
	rest := bytes.NewReader(file)
	for t := tar.NewReader(rest); ; {
		entry, err := t.Next()
		if err == io.EOF {
			break
		}
		begin := len(file) - rest.Len()
		if err == nil && entry.Size > int64(rest.Len()) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("bundle: machine code: %w", err)
		}
		modules[entry.Name] = file[begin : begin+int(entry.Size) : begin+int(entry.Size)]
	}
	if sum, want := string(modules[sumEntry]), sumOf(from); sum != want {
		return nil, fmt.Errorf("bundle: machine code was compiled from PTX with SHA-256 %q, not %s", sum, want)
	}
	delete(modules, sumEntry)
	return modules, nil
}

func sumOf(bundle []byte) string {
	sum := sha256.Sum256(bundle)
	return hex.EncodeToString(sum[:])
}
