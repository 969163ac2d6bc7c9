package main

import (
	"bytes"
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
			errs = append(errs, fmt.Errorf("config %s: unknown key %q", path, s.key))
		case given[name]:
		default:
			if err := flags.Set(name, s.value); err != nil {
				errs = append(errs, fmt.Errorf("config %s: key %q: value %s: %w", path, s.key, s.value, err))
			}
		}
	}
	return errors.Join(errs...)
}

// setting is a key of a config file and its value as a flag takes it.
type setting struct{ key, value string }

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
			return nil, err
		}
		key := t.(string) // the decoder lets no other type be a key
		if seen[key] {
			return nil, fmt.Errorf("key %q occurs twice", key)
		}
		seen[key] = true
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
		value, err := flagValue(v)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
		settings = append(settings, setting{key, value})
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("must hold nothing after its object")
	}
	return settings, nil
}

func flagValue(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return fmt.Sprint(v), nil
	case []any:
		var parts []string
		for _, e := range v {
			s, err := flagValue(e)
			if err != nil {
				return "", err
			}
			parts = append(parts, s)
		}
		return strings.Join(parts, ","), nil
	default:
		return "", fmt.Errorf("value (%v) must be a string, number, boolean or list", v)
	}
}
