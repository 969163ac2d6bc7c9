package cache_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/sharing"
)

// TestState_SetSource: a table whose rows are no longer those of its file is loaded anew by the next owner, and one whose rows are another file's is taken over for that.
func TestState_SetSource(t *testing.T) {
	none := func(*cache.Options) {}
	k := newKept(t)
	k.open(none)
	loaded := k.rows()
	k.update(1)
	if err := errors.Join(sharing.SetSource(k.Cache, 0, "other rows"), k.Close()); err != nil {
		t.Fatal(err)
	}
	if err := sharing.SetSource(k.Cache, 0, "x"); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	k.open(none)
	if got := k.log.String(); !strings.Contains(got, "its file was") || !bytes.Equal(k.rows(), loaded) {
		t.Errorf("rows are not those of the file: %s", got)
	}
	want := k.update(2)
	k.write(5)
	next, err := cache.Open(k.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sharing.SetSource(k.Cache, 0, sharing.Source(&next)), next.Close(), k.Close()); err != nil {
		t.Fatal(err)
	}
	k.open(none)
	if got := k.log.String(); !strings.Contains(got, "state: table is taken over") || !bytes.Equal(k.rows(), want) {
		t.Errorf("rows are not those of before: %s", got)
	}
}
