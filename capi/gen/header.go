package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
)

// header is what tensorcache.h declares, in its order. Names are without tc_ and TC_.
type header struct {
	version    string
	enums      []enum
	structures []structure
	functions  []function
	handles    map[string]bool
}

type enum struct {
	name   string
	values []value
}

type value struct {
	name   string
	number int
}

type structure struct {
	name   string
	fields []variable
}

// sized says whether the structure begins with its size.
func (s *structure) sized() bool { return s.fields[0] == variable{typ: "size_t", name: "size"} }

type function struct {
	result, name string
	parameters   []variable
	optional     map[string]bool // parameters that the comment says may be NULL
}

// variable is a field or a parameter. Its type is written as in "const char *", and length is that of an array, or "".
type variable struct{ typ, name, length string }

var (
	comments  = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	versions  = regexp.MustCompile(`#define TC_VERSION "(.*)"`)
	enums     = regexp.MustCompile(`(?s)typedef enum tc_(\w+) \{(.*?)\} tc_(\w+);`)
	constant  = regexp.MustCompile(`^TC_(\w+) = (\d+)$`)
	handles   = regexp.MustCompile(`typedef struct tc_(\w+) tc_(\w+);`)
	structs   = regexp.MustCompile(`(?s)typedef struct tc_(\w+) \{(.*?)\n\} tc_(\w+);`)
	declared  = regexp.MustCompile(`^((?:const )?\w+ \**)(\w+)(?:\[(\d+)\])?$`)
	functions = regexp.MustCompile(`(?s)(/\*(?:[^*]|\*[^/])*\*/\n)?TC_API ([\w ]+?[ *])tc_(\w+)\((.*?)\);`)
	optional  = regexp.MustCompile(`(\w+) may be NULL`)
)

func parse(text string) (*header, error) {
	h := &header{handles: map[string]bool{}}
	if found := versions.FindStringSubmatch(text); found != nil {
		h.version = found[1]
	}
	code := comments.ReplaceAllString(text, "")
	for _, found := range enums.FindAllStringSubmatch(code, -1) {
		e := enum{name: found[1]}
		for one := range strings.SplitSeq(found[2], ",") {
			c := constant.FindStringSubmatch(strings.TrimSpace(one))
			if c == nil {
				return nil, fmt.Errorf("tensorcache.h: %q of tc_%s must be TC_NAME = NUMBER", strings.TrimSpace(one), e.name)
			}
			number, err := strconv.Atoi(c[2])
			if err != nil {
				return nil, err
			}
			if of := dtype.Type(number).String(); e.name == "dtype" && !strings.HasPrefix(strings.ToUpper(of), c[1]) {
				return nil, fmt.Errorf("tensorcache.h: TC_%s (%d) must be the number of package dtype, which has %s there", c[1], number, of)
			}
			e.values = append(e.values, value{c[1], number})
		}
		h.enums = append(h.enums, e)
	}
	for _, found := range handles.FindAllStringSubmatch(code, -1) {
		h.handles[found[1]] = true
	}
	for _, found := range structs.FindAllStringSubmatch(code, -1) {
		fields, err := variables(strings.TrimSuffix(strings.TrimSpace(found[2]), ";"), ";")
		if err != nil {
			return nil, fmt.Errorf("tensorcache.h: tc_%s: %w", found[1], err)
		}
		h.structures = append(h.structures, structure{found[1], fields})
	}
	for _, found := range functions.FindAllStringSubmatch(text, -1) {
		f := function{result: strings.TrimSpace(found[2]), name: found[3], optional: map[string]bool{}}
		var err error
		if f.parameters, err = variables(found[4], ","); err != nil {
			return nil, fmt.Errorf("tensorcache.h: tc_%s: %w", f.name, err)
		}
		for _, one := range optional.FindAllStringSubmatch(found[1], -1) {
			f.optional[one[1]] = true
		}
		h.functions = append(h.functions, f)
	}
	if n := strings.Count(code, "\nTC_API "); n != len(h.functions) {
		return nil, fmt.Errorf("tensorcache.h: %d of %d functions are understood", len(h.functions), n)
	}
	return h, nil
}

// variables returns the fields or parameters of a text.
func variables(text, separator string) (all []variable, err error) {
	if text == "void" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, separator) {
		one = strings.Join(strings.Fields(one), " ")
		found := declared.FindStringSubmatch(one)
		if found == nil {
			return nil, fmt.Errorf("%q is not understood", one)
		}
		all = append(all, variable{strings.TrimSpace(found[1]), found[2], found[3]})
	}
	return all, nil
}
