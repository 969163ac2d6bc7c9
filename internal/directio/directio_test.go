package directio

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestOpen writes and reads blocks, past the page cache where the file system can.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blocks")
	if _, _, err := Open(path, os.O_RDONLY, 0); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
	f, direct, err := Open(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	t.Logf("direct: %v", direct)
	written, read := Aligned(3*Block), Aligned(3*Block)
	for i := range written {
		written[i] = byte(i * 7)
	}
	if _, err := f.WriteAt(written, Block); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(read, Block); err != nil || !bytes.Equal(read, written) {
		t.Errorf("other bytes were read: %v", err)
	}
}

// TestAligned: memory of every length begins at a block, and has no more bytes than asked for.
func TestAligned(t *testing.T) {
	for _, n := range []int{1, 100, Block - 1, Block, Block + 1, 10*Block + 5} {
		b := Aligned(n)
		if len(b) != n || cap(b) != n || !IsAligned(b) {
			t.Errorf("%d bytes: length %d, capacity %d, aligned %v", n, len(b), cap(b), IsAligned(b))
		}
		if IsAligned(b[1:]) && n > 1 {
			t.Errorf("%d bytes: the second one is aligned, too", n)
		}
		if got := Blocks(n); (got-1)*Block >= n || got*Block < n {
			t.Errorf("%d bytes take %d blocks", n, got)
		}
	}
}
