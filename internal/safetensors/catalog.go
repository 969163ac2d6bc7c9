package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/internal/datafile"
)

// catalog reads which tensors a checkpoint has: of an index, or of one file.
func catalog(file string) (*places, error) {
	p := &places{of: map[string]string{}}
	if strings.EqualFold(filepath.Ext(file), ".json") {
		if err := p.readIndex(file); err != nil {
			return nil, err
		}
	} else {
		s, err := openShard(file)
		if err != nil {
			return nil, err
		}
		s.file.Close()
		p.single = true
		for name := range s.tensors {
			p.of[name] = file
		}
	}
	for name := range p.of {
		p.names = append(p.names, name)
	}
	p.sort()
	return p, nil
}

// sort puts the names into the order of numbers.
func (p *places) sort() {
	slices.SortFunc(p.names, func(a, b string) int {
		if order := datafile.NaturalOrder(a, b); order != 0 {
			return order
		}
		return strings.Compare(a, b)
	})
}

// readIndex reads an object whose member weight_map has the file of each tensor:
//
//	{"metadata": {...}, "weight_map": {"model.a": "model-00001-of-00002.safetensors", ...}}
func (p *places) readIndex(file string) error {
	f, size, err := datafile.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if size > maxHeaderBytes {
		return fmt.Errorf("index (%d bytes) must be at most %d", size, maxHeaderBytes)
	}
	text, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return datafile.ReadError("reading the index", err)
	}
	return p.parseIndex(filepath.Dir(file), text)
}

func (p *places) parseIndex(folder string, text []byte) error {
	decode := parser{json.NewDecoder(bytes.NewReader(text))}
	decode.UseNumber()
	found := false
	err := decode.object("index", func(key string) error {
		if key != "weight_map" {
			var skipped json.RawMessage
			return decode.Decode(&skipped)
		}
		found = true
		return decode.object(key, func(name string) error {
			in, err := decode.text(key + " of " + name)
			if err != nil {
				return err
			}
			if in == "" || in == "." || in == ".." || filepath.Base(in) != in {
				return fmt.Errorf("file (%q) of tensor %q must be the name of a file beside the index", datafile.Clip(in), datafile.Clip(name))
			}
			p.of[name] = filepath.Join(folder, in)
			return nil
		})
	})
	if err == nil && !found {
		err = errors.New("index must have a weight_map, from names of tensors to files")
	}
	return err
}
