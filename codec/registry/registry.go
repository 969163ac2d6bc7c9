// Package registry serves the codecs of codec/codecs.list by name, and picks one for a table.
package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
)

const (
	// None is the name under which rows are stored as they are.
	None = "none"
	// Auto is the name under which Train picks the codec.
	Auto = "auto"
)

// Names returns the names that Train accepts, but for those with options.
func Names() []string {
	names := []string{Auto, None}
	for _, f := range families {
		if f.Option == "" {
			names = append(names, f.Name)
		}
	}
	return names
}

// Usage returns the names that Train accepts, with a word for the option where there is one.
func Usage() []string {
	names := Names()
	for _, f := range families {
		if f.Option != "" {
			names = append(names, f.Name+":"+f.Option)
		}
	}
	return names
}

// Concrete returns the names of the codecs that transform rows in their own way and without loss, in listing order.
func Concrete() []string {
	var names []string
	for _, f := range concrete() {
		names = append(names, f.Name)
	}
	return names
}

// concrete returns the families that auto-selection tries.
func concrete() []codec.Family {
	return slices.DeleteFunc(slices.Clone(families), func(f codec.Family) bool { return f.Choice || f.Lossy || f.Option != "" })
}

// Check returns an error when Train does not accept the name: it lists those that are, or says what is wrong with an option.
func Check(name string) error {
	if name == Auto || name == None {
		return nil
	}
	_, err := Family(name)
	return err
}

// Family returns the family of that name, with its option if it has one.
func Family(name string) (codec.Family, error) {
	base, option, _ := strings.Cut(name, ":")
	i := slices.IndexFunc(families, func(f codec.Family) bool { return f.Name == base })
	if i < 0 || families[i].Option == "" && base != name {
		return codec.Family{}, fmt.Errorf("codec: unknown codec (%q) must be one of %s", name, strings.Join(Usage(), ", "))
	}
	f := families[i]
	if f.Option == "" {
		return f, nil
	}
	if base == name {
		return f, fmt.Errorf("codec: codec (%q) must have an option, as in %s:%s", name, base, f.Option)
	}
	f, err := f.WithOption(option)
	if err != nil {
		return f, fmt.Errorf("codec: codec (%q): %w", name, err)
	}
	return f, nil
}

// Train makes the named codec for rows of dtype's elements like those of sample, which lie back to back in it. None gives a nil
// codec; Auto is Pick for a GPU behind the usual link, of a table that is the sample, and gives nil when no codec pays. Of longer tables
// Pick has to know Terms.Rows: of small ones it trains on few rows.
func Train(name string, sample []byte, rowBytes int, of dtype.Type) (codec.Codec, error) {
	switch name {
	case None:
		return nil, nil
	case Auto:
		c, _, err := Pick(sample, rowBytes, of, Terms{})
		return c, err
	}
	f, err := Family(name)
	if err != nil {
		return nil, err
	}
	return f.Train(sample, rowBytes, f.ElementsOf(of))
}
