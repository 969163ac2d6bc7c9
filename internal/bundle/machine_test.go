package bundle

import (
	"bytes"
	"maps"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestUnpackMachine(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	from := []byte("a bundle of PTX")
	modules := map[string][]byte{"decode_raw": {0, 1, 2}, "serve_raw": bytes.Repeat([]byte{7}, 5000)}
	file, err := Machine(from, modules)
	if err != nil {
		t.Fatal(err)
	}
	packed := enc.EncodeAll(file, nil)
	got, err := UnpackMachine(packed, from)
	if err != nil || !maps.EqualFunc(got, modules, bytes.Equal) {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := UnpackMachine(packed, []byte("another")); err == nil {
		t.Errorf("of other PTX: got %q", got)
	}
	for name, bad := range map[string][]byte{
		"empty": nil, "no frame": []byte("PTX"), "cut frame": packed[:len(packed)/2], "cut archive": enc.EncodeAll(file[:len(file)/2], nil),
		"no sum": enc.EncodeAll(make([]byte, 1024), nil),
	} {
		if got, err := UnpackMachine(bad, from); err == nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
