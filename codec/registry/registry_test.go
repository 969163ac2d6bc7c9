package registry

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
)

func TestTrain_AutoPicksTheSmallest(t *testing.T) {
	// Each 4-byte word is constant in half of the rows, on its own: chunks of 8 bytes participate too rarely.
	r := rand.New(rand.NewPCG(1, 2))
	var mixed, noise []byte
	for range 4096 * 16 {
		constant := r.IntN(2) == 0
		for range 4 {
			b := byte(r.Uint32())
			noise = append(noise, b)
			if constant {
				b = 7
			}
			mixed = append(mixed, b)
		}
	}
	for _, c := range []struct {
		name, want string
		sample     []byte
	}{{Auto, "ibp4", mixed}, {Auto, "", noise}, {None, "", mixed}, {"ibp8", "ibp8", noise}, {"ibp", "ibp8", bytes.Repeat([]byte{1}, 4096)}} {
		got, err := Train(c.name, c.sample, 64, dtype.Float32)
		if err != nil {
			t.Fatal(err)
		}
		name := ""
		if got != nil {
			name = got.Name()
		}
		if name != c.want {
			t.Errorf("Train(%s) picked %q, want %q", c.name, name, c.want)
		}
	}
}

func TestTrain_UnknownName(t *testing.T) {
	_, err := Train("zip", nil, 4, dtype.Float32)
	if want := `codec: unknown codec ("zip") must be one of auto, none, ibp, ibp2, ibp4, ibp8, ibpc`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("got %v, want %s", err, want)
	}
	if _, err := Train("ibp4:0.5", nil, 4, dtype.Float32); err == nil || !strings.Contains(err.Error(), `unknown codec ("ibp4:0.5")`) {
		t.Errorf("an option of a codec that has none: %v", err)
	}
}

func rowOf(t *testing.T, name string) dtype.Type {
	t.Helper()
	of, err := dtype.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return of
}

func TestNames_AllTrain(t *testing.T) {
	sample := bytes.Repeat([]byte("tensor rows of one kind "), 64)
	for _, name := range Names() {
		if err := Check(name); err != nil {
			t.Error(err)
		}
		c, err := Train(name, sample, 24, dtype.Float32)
		if errors.Is(err, codec.ErrDType) {
			c, err = Train(name, sample, 24, dtype.BFloat16)
		}
		if errors.Is(err, codec.ErrDType) {
			c, err = Train(name, sample, 24, rowOf(t, "int8*20,float32"))
		}
		if err != nil {
			t.Errorf("Train(%s): %v", name, err)
			continue
		}
		if (c == nil) != (name == None) {
			t.Errorf("Train(%s) gives %v", name, c)
		}
	}
}

// TestConcrete_NamesThemselves: reports list a codec under the name that its tables have.
func TestConcrete_NamesThemselves(t *testing.T) {
	for _, name := range Concrete() {
		c, err := Train(name, make([]byte, 4096), 64, dtype.Float32)
		if errors.Is(err, codec.ErrDType) {
			c, err = Train(name, make([]byte, 4096), 64, dtype.BFloat16)
		}
		if errors.Is(err, codec.ErrDType) {
			c, err = Train(name, make([]byte, 4096), 64, rowOf(t, "int8*60,float32"))
		}
		if err != nil || c.Name() != name {
			t.Errorf("Train(%s) gives %v, %v", name, c, err)
		}
	}
}

// TestFamilies_Unmarshal: every family restores its own codecs, and only from whole metadata.
func TestFamilies_Unmarshal(t *testing.T) {
	row := bytes.Repeat([]byte{0x80, 0x3f}, 17) // ones, which every codec shrinks
	sample := bytes.Repeat(row, 20)
	for _, f := range families {
		if f.Option != "" {
			continue
		}
		of := dtype.BFloat16
		if f.Rows {
			of = rowOf(t, "bfloat16*16,int16")
		}
		c, err := f.Train(sample, len(row), of)
		if err != nil {
			t.Fatal(err)
		}
		metadata, err := c.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		again, err := f.Unmarshal(metadata)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		a, b := make([]byte, c.EncodeBound()), make([]byte, again.EncodeBound())
		n, err := c.Encode(a, row)
		m, errAgain := again.Encode(b, row)
		if err != nil || errAgain != nil || !bytes.Equal(a[:n], b[:m]) {
			t.Errorf("%s: restored codec writes %x, %v, want %x, %v", f.Name, b[:m], errAgain, a[:n], err)
		}
		if _, err := f.Unmarshal(metadata[:len(metadata)-1]); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: truncated metadata: %v", f.Name, err)
		}
	}
}

func TestTrain_BadSamples(t *testing.T) {
	for _, name := range []string{"ibp", "ibp4", "ibp8"} {
		for _, c := range []struct {
			sample, row int
			want        string
		}{
			{0, 8, "ibp: sample (0 rows) must have at least one row"},
			{12, 8, "ibp: sample (12 bytes) must be a multiple of the row (8 bytes)"},
			{8, 0, "ibp: row (0 bytes) must be 1 to 1048575"},
			{1 << 20, 1 << 20, "ibp: row (1048576 bytes) must be 1 to 1048575"},
		} {
			if _, err := Train(name, make([]byte, c.sample), c.row, dtype.Uint8); err == nil || err.Error() != c.want {
				t.Errorf("Train(%s): got %v, want %s", name, err, c.want)
			}
		}
	}
}
