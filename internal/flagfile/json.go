package flagfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ReadJSON reads one JSON object of strings, numbers, booleans and lists of them. Keys must not occur twice.
func ReadJSON(b []byte) ([]Setting, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("must hold one JSON object")
	}
	var settings []Setting
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, syntax(err)
		}
		key := t.(string) // the decoder lets no other type be a key
		if seen[key] {
			return nil, fmt.Errorf("key %q occurs twice", key)
		}
		seen[key] = true
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("key %q: %w", key, syntax(err))
		}
		value, list, err := flagValue(v)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
		settings = append(settings, Setting{Key: key, Value: value, List: list})
	}
	if _, err := d.Token(); err != nil {
		return nil, syntax(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("must hold nothing after its object")
	}
	return settings, nil
}

// syntax explains an error of the JSON decoder.
func syntax(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("must hold one complete JSON object: truncated")
	}
	return fmt.Errorf("must hold one JSON object: %w", err)
}

// flagValue returns v as a flag takes it: a list's elements with commas between them.
func flagValue(v any) (value string, list bool, err error) {
	switch v := v.(type) {
	case string:
		return v, false, nil
	case json.Number, bool:
		return fmt.Sprint(v), false, nil
	case []any:
		if len(v) == 0 {
			return "", true, errors.New("list ([]) must not be empty")
		}
		parts := make([]string, len(v))
		for i, e := range v {
			part, nested, err := flagValue(e)
			if err != nil || nested {
				return "", true, fmt.Errorf("element %d: %w", i, cmp.Or(err, notScalar(e)))
			}
			parts[i] = part
		}
		return strings.Join(parts, ","), true, nil
	}
	return "", false, notScalar(v)
}

func notScalar(v any) error {
	text, _ := json.Marshal(v) // it was decoded just now
	return fmt.Errorf("value (%s) must be a string, number or boolean", text)
}
