package bundle

import (
	"maps"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestUnpack_Join(t *testing.T) {
	modules := map[string][]byte{"decode_raw": []byte("// a comment\n.entry a\n"), "fetch_raw": []byte(".entry b\n\n"), "last_raw": []byte("\n")}
	text, err := Join(modules)
	if err != nil {
		t.Fatal(err)
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := enc.EncodeAll(text, nil)
	got, err := Unpack(packed)
	if err != nil || !maps.EqualFunc(got, modules, slices.Equal) {
		t.Errorf("got %q, %v", got, err)
	}
	for name, text := range map[string]string{"a": "no newline", "b": "//module c\n", "c": "x\n//module d\n", "e f": "x\n"} {
		if _, err := Join(map[string][]byte{name: []byte(text)}); err == nil {
			t.Errorf("module %q of text %q is joined", name, text)
		}
	}
	for name, bad := range map[string][]byte{
		"cut off": packed[:len(packed)-1], "no name": enc.EncodeAll([]byte(".entry\n"), nil), "the same name twice": enc.EncodeAll(append(text, text...), nil),
	} {
		if _, err := Unpack(bad); err == nil {
			t.Errorf("%s: unpacked", name)
		}
	}
}

func TestOf(t *testing.T) {
	for module, want := range map[string]string{"decodeTwo_ibp4x5": "ibp4x5", "order": "common"} {
		if got := Of(module); got != want {
			t.Errorf("%s is in %s, want %s", module, got, want)
		}
	}
}
