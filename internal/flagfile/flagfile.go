// Package flagfile sets the flags of a command from a file, whose keys are the names of flags with underscores for dashes. The command line goes
// before the file. ReadJSON and ReadYAML read a file; Apply sets the flags. Not safe for concurrent use of one set of flags.
package flagfile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Setting is a key of a file and its value as a flag takes it, the elements of a list between commas.
type Setting struct {
	Key, Value string
	// List says that the value was a list.
	List bool
	// Records are the elements of a list of mappings, each as "key=value,key=value" with CSV's quotes. Value is "" then.
	Records []string
	// Line is where the key is, from 1 on; 0 if that is not known.
	Line int
}

// Apply sets the flags that a file names and the command line does not. A list of mappings under a key in the plural, such as tables, sets the flag in
// the singular, such as --table, once for each mapping. The error has every key that is unknown or has a bad value, with its line.
func Apply(flags *pflag.FlagSet, path string, settings []Setting) error {
	given := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	var errs []error
	for _, s := range settings {
		at := path
		if s.Line > 0 {
			at = fmt.Sprintf("%s:%d", path, s.Line)
		}
		if err := apply(flags, s, given); err != nil {
			errs = append(errs, fmt.Errorf("config %s: %w", at, err))
		}
	}
	return errors.Join(errs...)
}

func apply(flags *pflag.FlagSet, s Setting, given map[string]bool) error {
	name := strings.ReplaceAll(s.Key, "_", "-")
	values := []string{s.Value}
	if s.Records != nil {
		singular, plural := strings.CutSuffix(name, "s")
		if !plural || flags.Lookup(singular) == nil || flags.Lookup(name) != nil {
			return fmt.Errorf("unknown key %q of a list of mappings", s.Key)
		}
		name, values = singular, s.Records
	}
	f := flags.Lookup(name)
	switch {
	case f == nil || strings.Contains(s.Key, "-") || name == "config" || name == "help":
		hint := ""
		if known := strings.ReplaceAll(strings.ToLower(s.Key), "-", "_"); known != s.Key && flags.Lookup(strings.ReplaceAll(known, "_", "-")) != nil {
			hint = fmt.Sprintf(": did you mean %q?", known)
		}
		return fmt.Errorf("unknown key %q%s", s.Key, hint)
	case s.List && s.Records == nil && !strings.HasSuffix(f.Value.Type(), "Slice"):
		return fmt.Errorf("key %q: value (%s) must not be a list", s.Key, s.Value)
	case given[name]:
		return nil
	}
	if r, ok := f.Value.(*renamed); ok && given[r.now] {
		return nil
	}
	for i, v := range values {
		if err := flags.Set(name, v); err != nil {
			if s.Records != nil {
				return fmt.Errorf("key %q: element %d: %w", s.Key, i, ValueError(err))
			}
			return fmt.Errorf("key %q: %w", s.Key, ValueError(err))
		}
	}
	return nil
}

// GivenTwice is the error of a flag's Set if the flag must not be given twice. It is the value that the flag has.
type GivenTwice string

func (g GivenTwice) Error() string { return fmt.Sprintf("given twice, before as %q", string(g)) }

// Takes is the error of a flag's Set that says what the flag takes, where its type does not say so.
type Takes string

func (t Takes) Error() string { return "must be " + string(t) }

// ValueError says what a flag takes if err is the error of a value that is not of the flag's type. Other errors are returned as they are.
func ValueError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	if before, ok := errors.AsType[GivenTwice](err); ok {
		return fmt.Errorf("--%s (%q) must be given once: it is %q already", invalid.GetFlag().Name, invalid.GetValue(), string(before))
	}
	if takes, ok := errors.AsType[Takes](err); ok {
		return fmt.Errorf("--%s (%q) %w", invalid.GetFlag().Name, invalid.GetValue(), takes)
	}
	takes, known := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint64": "a whole number from 0 on", "float64": "a number",
		"intSlice": "whole numbers between commas", "duration": "a time such as 100ms", "bool": "true or false",
	}[invalid.GetFlag().Value.Type()]
	if !known {
		return err
	}
	if errors.Is(err, strconv.ErrRange) {
		takes += " of 64 bits"
	}
	return fmt.Errorf("--%s (%q) must be %s", invalid.GetFlag().Name, invalid.GetValue(), takes)
}
