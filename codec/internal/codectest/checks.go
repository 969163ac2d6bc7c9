package codectest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
)

// Cut checks that no part of a stored row, from its front, is taken for a whole one.
func Cut(t testing.TB, c codec.Codec, stored []byte) {
	t.Helper()
	row := make([]byte, c.RowBytes())
	for n := range stored {
		if _, err := c.Decode(row, stored[:n:n]); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%s, rows of %d bytes: %d of %d bytes: %v, want ErrCorrupt", c.Name(), len(row), n, len(stored), err)
		}
		if _, err := c.Stored(stored[:n:n]); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%s, rows of %d bytes: Stored of %d of %d bytes: %v, want ErrCorrupt", c.Name(), len(row), n, len(stored), err)
		}
	}
}

// Metadata checks that a codec's metadata restore it, and that none of their bytes can be missing or damaged.
func Metadata[C codec.Codec](t testing.TB, c C, unmarshal func([]byte) (C, error)) {
	t.Helper()
	b, err := c.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	restored, err := unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if restored.Name() != c.Name() || restored.RowBytes() != c.RowBytes() || restored.MetadataBytes() != c.MetadataBytes() {
		t.Errorf("metadata of %s, %d bytes a row, %d on devices restore %s, %d, %d", c.Name(), c.RowBytes(), c.MetadataBytes(),
			restored.Name(), restored.RowBytes(), restored.MetadataBytes())
	}
	if again, err := restored.MarshalBinary(); err != nil || !bytes.Equal(again, b) {
		t.Errorf("metadata come back as %x, %v, want %x", again, err, b)
	}
	for i := range b {
		damaged := bytes.Clone(b)
		damaged[i] ^= 0x10
		if _, err := unmarshal(damaged); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("byte %d damaged: %v, want ErrCorrupt", i, err)
		}
		if _, err := unmarshal(b[:i]); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%d of %d bytes: %v, want ErrCorrupt", i, len(b), err)
		}
	}
}

// NoAllocations checks that encoding and decoding a row allocates nothing.
func NoAllocations(t testing.TB, c codec.Codec, row []byte) {
	t.Helper()
	dst, got := make([]byte, c.EncodeBound()), make([]byte, len(row))
	n, err := c.Encode(dst, row)
	if err != nil {
		t.Fatal(err)
	}
	if a := testing.AllocsPerRun(10, func() {
		_, _ = c.Encode(dst, row)
		_, _ = c.Decode(got, dst[:n])
		_, _ = c.Stored(dst[:n])
	}); a != 0 {
		t.Errorf("%s, rows of %d bytes: %v allocations", c.Name(), len(row), a)
	}
}

// Errors checks the whole text of errors.
func Errors[T any](t testing.TB, calls map[string]func() (T, error)) {
	t.Helper()
	for want, call := range calls {
		if _, err := call(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// HostileMetadata checks the whole text of the errors for metadata that are sealed, but have a field that no codec has. Keys are what
// follows "codec: corrupt data: " and the package's name.
func HostileMetadata[C codec.Codec](t testing.TB, c C, name string, unmarshal func([]byte) (C, error), seal func([]byte) []byte, changes map[string]func(b []byte)) {
	t.Helper()
	for want, change := range changes {
		b, err := c.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		change(b)
		_, err = unmarshal(seal(b))
		if want := codec.CorruptError(name, "%s", want).Error(); !errors.Is(err, codec.ErrCorrupt) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Decodes decodes what may be no stored row: ErrCorrupt, or a row whose stored length Decode and Stored agree on.
func Decodes(t testing.TB, c codec.Codec, src []byte) (row []byte, stored int, ok bool) {
	t.Helper()
	row = make([]byte, c.RowBytes())
	stored, err := c.Decode(row, src)
	if err != nil {
		if !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%v, want ErrCorrupt", err)
		}
		return nil, 0, false
	}
	if n, err := c.Stored(src); err != nil || n != stored {
		t.Fatalf("Decode %d; Stored %d, %v", stored, n, err)
	}
	return row, stored, true
}
