package bundle

import (
	"bytes"
	"maps"
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
	if err != nil || !maps.EqualFunc(got, modules, func(p Packed, text []byte) bool { return bytes.Equal(p.Text(), text) }) {
		t.Errorf("got %q, %v", got, err)
	}
	for name, text := range map[string]string{"a": "no newline", "b": "//module c\n", "c": "x\n//module d\n", "e f": "x\n", "g": "[%rd+8]\n", "h": "%r01\n"} {
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

func TestPacked_Text(t *testing.T) {
	const text = "add %r12, %r10, -3;\n$L__BB0_7:\nld.u64 %rd3, [%rd1+240];\n@%p1 bra $L__BB0_5;\nmov %r13, %tid.x; [%SP+8] .reg .b32 %r<14>; x%"
	const want = "add %r+12, %r-2, -3;\n$L__BB0_+7:\nld.u64 %rd+3, [%rd-2+240];\n@%p+1 bra $L__BB0_-2;\nmov %r+3, %tid.x; [%SP+8] .reg .b32 %r<14>; x%"
	got, err := Pack([]byte(text))
	if err != nil || string(got) != want || string(got.Text()) != text {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestOf(t *testing.T) {
	for module, want := range map[string]string{"decodeTwo_ibp4x5": "ibp", "fetch_raw": "raw", "order": "common"} {
		if got := Of(module); got != want {
			t.Errorf("%s is in %s, want %s", module, got, want)
		}
	}
}
