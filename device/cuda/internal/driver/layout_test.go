//go:build cuda

package driver

import (
	"slices"
	"strings"
	"testing"
)

func TestLayout_Fields(t *testing.T) {
	type pair struct{ A, B uint16 }
	got, err := layoutOf[struct {
		P DevicePtr
		I int32
		F float32
		B uint8
		_ [3]byte
		S pair
		X [3]float32
	}]()
	if err != nil {
		t.Fatal(err)
	}
	want := []param{{"P", 0, 8}, {"I", 8, 4}, {"F", 12, 4}, {"B", 16, 1}, {"S", 20, 4}, {"X", 24, 12}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLayout_Refused(t *testing.T) {
	_, number := layoutOf[int]()
	_, pointer := layoutOf[struct{ P *int }]()
	_, slice := layoutOf[struct{ P struct{ S []byte } }]()
	_, long := layoutOf[struct{ A [1 << 17]byte }]()
	for err, want := range map[error]string{
		number:  "must be a struct",
		pointer: "P (*int) must be a number",
		slice:   "must be a number",
		long:    "must fit 65536 B",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestLayout_MaxParams(t *testing.T) {
	if maxParams != shimMaxParams {
		t.Errorf("maxParams is %d, the shim's is %d", maxParams, shimMaxParams)
	}
}
