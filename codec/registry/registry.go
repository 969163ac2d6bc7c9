// Package registry lists the codecs and picks one for a table. A new codec is one line here.
package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/ibp"
)

// families, in the order in which they are listed and tried.
var families = []codec.Family{ibp.IBP, ibp.IBP4, ibp.IBP8}

// concrete are the families that auto-selection tries: those that are not a choice among others.
var concrete = []codec.Family{ibp.IBP4, ibp.IBP8}

const (
	// None is the name under which rows are stored as they are.
	None = "none"
	// Auto is the name under which Train picks the codec.
	Auto = "auto"
)

// Names returns the names that Train accepts.
func Names() []string {
	names := []string{Auto, None}
	for _, f := range families {
		names = append(names, f.Name)
	}
	return names
}

// Concrete returns the names of the codecs that transform rows in their own way, in listing order.
func Concrete() []string {
	var names []string
	for _, f := range concrete {
		names = append(names, f.Name)
	}
	return names
}

// Check returns an error that lists the known names when name is not one of them.
func Check(name string) error {
	if !slices.Contains(Names(), name) {
		return fmt.Errorf("codec: unknown codec (%q) must be one of %s", name, strings.Join(Names(), ", "))
	}
	return nil
}

// Train makes the named codec for rows like those of sample, which lie back to back in it. None gives a nil codec, and
// so does Auto when no codec shrinks the sample.
func Train(name string, sample []byte, rowBytes int) (codec.Codec, error) {
	if err := Check(name); err != nil {
		return nil, err
	}
	switch name {
	case None:
		return nil, nil
	case Auto:
		return auto(sample, rowBytes)
	}
	i := slices.IndexFunc(families, func(f codec.Family) bool { return f.Name == name })
	return families[i].Train(sample, rowBytes)
}

// TrainOn is Train on a search of IBP's, which a device may have made; ok is false for names that are none of IBP's doing.
// It picks what Train would.
func TrainOn(name string, s ibp.Search) (c codec.Codec, ok bool, err error) {
	var best *ibp.Codec
	var bytes int64
	switch name {
	case ibp.IBP4.Name:
		best, bytes, err = ibp.TrainOn(s, 4)
	case ibp.IBP8.Name:
		best, bytes, err = ibp.TrainOn(s, 8)
	case ibp.IBP.Name, Auto:
		best, bytes, err = ibp.TrainBestOn(s)
	default:
		return nil, false, nil
	}
	if err != nil || name == Auto && bytes >= int64(s.Rows())*int64(s.RowBytes()) {
		return nil, true, err
	}
	return best, true, nil
}

// auto picks the codec that stores the sample in the fewest bytes.
func auto(sample []byte, rowBytes int) (best codec.Codec, err error) {
	fewest := int64(len(sample))
	for _, f := range concrete {
		c, err := f.Train(sample, rowBytes)
		if err != nil {
			return nil, err
		}
		n, err := storedBytes(c, sample)
		if err != nil {
			return nil, err
		}
		if n < fewest {
			best, fewest = c, n
		}
	}
	return best, nil
}

// storedBytes is what the sample takes with c, rows that do not shrink counted raw.
func storedBytes(c codec.Codec, sample []byte) (int64, error) {
	dst := make([]byte, c.EncodeBound())
	var sum int64
	for ; len(sample) > 0; sample = sample[c.RowBytes():] {
		n, err := c.Encode(dst, sample[:c.RowBytes()])
		if err == codec.ErrIncompressible {
			n = c.RowBytes()
		} else if err != nil {
			return 0, err
		}
		sum += int64(n)
	}
	return sum, nil
}
