package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// applyConfigFile sets the flags that a JSON file names and the command line does not.
func applyConfigFile(flags *pflag.FlagSet, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	settings, err := parseConfig(b)
	if err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	given := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	var errs []error
	for _, s := range settings {
		name := strings.ReplaceAll(s.key, "_", "-")
		f := flags.Lookup(name)
		switch {
		case f == nil || strings.Contains(s.key, "-") || name == "config" || name == "help":
			hint := ""
			if known := strings.ReplaceAll(strings.ToLower(s.key), "-", "_"); known != s.key && flags.Lookup(strings.ReplaceAll(known, "_", "-")) != nil {
				hint = fmt.Sprintf(": did you mean %q?", known)
			}
			errs = append(errs, fmt.Errorf("config %s: unknown key %q%s", path, s.key, hint))
		case s.list && !strings.HasSuffix(f.Value.Type(), "Slice"):
			errs = append(errs, fmt.Errorf("config %s: key %q: value (%s) must not be a list", path, s.key, s.value))
		case given[name]:
		default:
			if err := flags.Set(name, s.value); err != nil {
				errs = append(errs, fmt.Errorf("config %s: key %q: %w", path, s.key, flagError(err)))
			}
		}
	}
	return errors.Join(errs...)
}

// syntax explains an error of the JSON decoder.
func syntax(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("must hold one complete JSON object: truncated")
	}
	return fmt.Errorf("must hold one JSON object: %w", err)
}

// setting is a key of a config file and its value as a flag takes it, list elements between commas.
type setting struct {
	key, value string
	list       bool
}

// parseConfig reads one JSON object of strings, numbers, booleans and arrays of them. Keys must not occur twice.
func parseConfig(b []byte) ([]setting, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("must hold one JSON object")
	}
	var settings []setting
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
		settings = append(settings, setting{key, value, list})
	}
	if _, err := d.Token(); err != nil {
		return nil, syntax(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("must hold nothing after its object")
	}
	return settings, nil
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
