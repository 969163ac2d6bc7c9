package pages

import (
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestManifest_Parts: the manifest of rows of parts has their text, and no other; unpacked they are of a structured dtype.
func TestManifest_Parts(t *testing.T) {
	of, err := dtype.Parse("float8_e4m3fn*64,float8_e5m2*2,int16")
	if err != nil {
		t.Fatal(err)
	}
	m := Manifest{Name: "x", Codec: "none", DType: of, RowBytes: of.Size(), PageBytes: MinPageBytes, GroupRows: 1}
	m.Parts[PartIndex].Bytes = indexBytes(0, 0)
	b, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var got Manifest
	if err := got.UnmarshalBinary(b); err != nil || got != m {
		t.Errorf("%+v, %v, want %+v", got, err, m)
	}
	text := "float8_e4m3fn*64,float8_e5m2*2,int16"
	for other, want := range map[string]string{
		strings.Replace(text, "int16", "int61", 1): `element type ("int61")`, strings.Replace(text, "*64", "*63", 1): "row bytes (68) cannot be",
		strings.Replace(text, "float8_e5m2*2", "float8_e4m3fn", 1)[:len(text)-4] + "": "",
	} {
		damaged := append([]byte(nil), b[:len(b)-4-len(text)]...)
		damaged = append(damaged, other...)
		damaged = append(damaged, 0, 0, 0, 0)
		sum := checksum(damaged[:len(damaged)-4])
		for i := range 4 {
			damaged[len(damaged)-4+i] = byte(sum >> (8 * i))
		}
		if err := got.UnmarshalBinary(damaged); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", other, err, want)
		}
	}
	header, err := arrayHeader(&m, false)
	if want := "{'descr': [('p0', '|V1', (64,)), ('p1', '<f1', (2,)), ('p2', '<i2', (1,))], 'fortran_order': False, 'shape': (0,), }"; err != nil || !strings.Contains(string(header), want) {
		t.Errorf("%q, %v, want %s", header, err, want)
	}
	if _, err := arrayHeader(&m, true); err == nil || !strings.Contains(err.Error(), "cannot hold rows of parts") {
		t.Errorf(".safetensors: %v", err)
	}
	if header, err := arrayHeader(&Manifest{DType: dtype.BFloat16, RowBytes: 8, Rows: 3}, false); err != nil || !strings.Contains(string(header), "'descr': '<V2'") {
		t.Errorf("bfloat16: %q, %v", header, err)
	}
	if _, err := arrayHeader(&Manifest{DType: dtype.Float8E4M3FN, RowBytes: 8, Rows: 3}, false); err == nil || !strings.Contains(err.Error(), "cannot hold float8_e4m3fn: take a name that ends in .safetensors") {
		t.Errorf("float8: %v", err)
	}
}
