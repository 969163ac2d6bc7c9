// Command gen reads capi/tensorcache.h, which describes the C library, and writes what follows from it: python/tensorcache/_abi.py, the constants, structures and
// functions as ctypes has them, capi/calls.c and calls.go, the way from a function in C to a method in Go, and the version in internal/version. It runs in the folder of package capi, by go generate.
package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"log"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"github.com/tensorcache/tensorcache/dtype"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	text, err := os.ReadFile("tensorcache.h")
	if err != nil {
		log.Fatal(err)
	}
	files, err := generate(string(text))
	if err != nil {
		log.Fatal(err)
	}
	for path, source := range files {
		if err := os.WriteFile(path, source, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

var (
	//go:embed abi.py.tmpl
	abi string
	//go:embed calls.c.tmpl
	callsC string
	//go:embed calls.go.tmpl
	callsGo string
	//go:embed version.go.tmpl
	version string
)

// generate returns what follows from a header, by path from the folder of package capi.
func generate(text string) (map[string][]byte, error) {
	h, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("tensorcache.h: %w", err)
	}
	files := map[string][]byte{}
	for path, source := range map[string]string{"../python/tensorcache/_abi.py": abi, "calls.c": callsC, "calls.go": callsGo, "../internal/version/number.go": version} {
		var out bytes.Buffer
		if err := template.Must(template.New("").Parse(source)).Execute(&out, h); err != nil {
			return nil, err
		}
		files[path] = out.Bytes()
	}
	return files, nil
}

// header is what tensorcache.h declares, in its order. Names are without tc_ and TC_.
type header struct {
	Version    string
	Enums      []enum
	Structures []structure
	Functions  []function
}

type enum struct {
	Name   string
	Dict   string // of the numbers by name, in Python
	Values []value
}

// value is a number. Key is its name in the dict of the enumeration, and Bytes is the length of an element of tc_dtype.
type value struct {
	Name, Key     string
	Number, Bytes int
}

type structure struct {
	Class  string
	Fields []variable
}

// Sized says whether the structure begins with its size.
func (s structure) Sized() bool { return s.Fields[0].Name == "size" }

type function struct {
	Result, Name string
	Returns      string // in Python
	Parameters   []variable
	// Calls says whether the function only calls Go: it returns a status or gives a handle up. Of is the handle that it is a method of, if any.
	Calls bool
	Of    string
}

// With returns the beginning of a call of a method of the handle's object.
func (f function) With() string {
	return map[string]string{"cache": "caches.with(h, func(of *served) ", "opening": "openings.with(h, func(of *opening) ", "batch": "batches.with(h, func(of *batch) ", "model": "models.with(h, func(of *opened) "}[f.Of]
}

// Method returns the name of the function in Go, as "gatherHostIDs".
func (f function) Method() string {
	name := class(strings.TrimPrefix(f.Name, f.Of+"_"))
	return strings.NewReplacer("Ids", "IDs", "Json", "JSON", "Gpu", "GPU").Replace(strings.ToLower(name[:1]) + name[1:])
}

// variable is a field or a parameter.
type variable struct {
	C, Name string // as in "const char *", "address"
	Python  string // the type of ctypes. Handles and pointers to numbers are addresses
	Cast    string // to what Go takes, unless it is the same
	Go      string
	Needed  bool // must not be NULL
	Result  bool // points to a pointer that is set to NULL
}

var (
	comments  = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	versions  = regexp.MustCompile(`#define TC_VERSION_MAJOR (\d+)\n#define TC_VERSION_MINOR (\d+)\n#define TC_VERSION_PATCH (\d+)\n#define TC_VERSION "(.*)"`)
	enums     = regexp.MustCompile(`(?s)typedef enum tc_(\w+) \{(.*?)\}`)
	constant  = regexp.MustCompile(`^TC_(\w+) = (\d+)$`)
	handle    = regexp.MustCompile(`typedef struct tc_(\w+) tc_`)
	structs   = regexp.MustCompile(`(?s)typedef struct tc_(\w+) \{(.*?);\s*\}`)
	declared  = regexp.MustCompile(`^((?:const )?\w+ \**)(\w+)(?:\[(\d+)\])?$`)
	functions = regexp.MustCompile(`(?s)(/\*(?:[^*]|\*[^/])*\*/\n)?TC_API ([\w ]+?[ *])tc_(\w+)\((.*?)\);`)
	optional  = regexp.MustCompile(`(\w+) may be NULL`)
)

func parse(text string) (*header, error) {
	h, code, handles := &header{}, comments.ReplaceAllString(text, ""), map[string]bool{}
	found := versions.FindStringSubmatch(text)
	if found == nil || strings.Join(found[1:4], ".") != found[4] {
		return nil, fmt.Errorf("TC_VERSION must be TC_VERSION_MAJOR.MINOR.PATCH, which are defined before it")
	}
	h.Version = found[4]
	for _, found := range enums.FindAllStringSubmatch(code, -1) {
		e := enum{Name: found[1], Dict: strings.ToUpper(found[1])}
		word, _, _ := strings.Cut(strings.ToUpper(e.Name), "_")
		for one := range strings.SplitSeq(found[2], ",") {
			one = strings.TrimSpace(one)
			c := constant.FindStringSubmatch(one)
			if c == nil {
				return nil, fmt.Errorf("%q of tc_%s must be TC_NAME = NUMBER", one, e.Name)
			}
			number, err := strconv.Atoi(c[2])
			if err != nil {
				return nil, err
			}
			v := value{Name: c[1], Key: strings.ToLower(strings.TrimPrefix(c[1], word+"_")), Number: number}
			if e.Name == "dtype" {
				of := dtype.Type(number)
				if v.Key, v.Bytes = of.String(), of.Size(); !strings.HasPrefix(strings.ToUpper(v.Key), v.Name) {
					return nil, fmt.Errorf("TC_%s (%d) must be the number of package dtype, which has %s there", v.Name, number, v.Key)
				}
			}
			e.Values = append(e.Values, v)
		}
		h.Enums = append(h.Enums, e)
	}
	for _, found := range handle.FindAllStringSubmatch(code, -1) {
		handles[found[1]] = true
	}
	for _, found := range structs.FindAllStringSubmatch(code, -1) {
		fields, err := variables(found[2], ";", "", handles)
		if err != nil {
			return nil, fmt.Errorf("tc_%s: %w", found[1], err)
		}
		h.Structures = append(h.Structures, structure{class(found[1]), fields})
	}
	for _, found := range functions.FindAllStringSubmatch(text, -1) {
		parameters, err := variables(found[4], ",", found[1], handles)
		if err != nil {
			return nil, fmt.Errorf("tc_%s: %w", found[3], err)
		}
		f := function{Result: found[2], Name: found[3], Returns: ctype(strings.TrimSpace(found[2]), handles), Parameters: parameters}
		f.Calls = f.Result == "tc_status " && f.Name != "status_name" || f.Result == "void " && parameters[0].C != "void *"
		if f.Result == "tc_status " && f.Name != "close" && strings.HasSuffix(parameters[0].Cast, "(uintptr_t)") {
			if of := strings.TrimSuffix(strings.TrimPrefix(parameters[0].C, "tc_"), " *"); handles[of] {
				f.Of = of
			}
		}
		h.Functions = append(h.Functions, f)
	}
	if n := strings.Count(code, "\nTC_API "); n != len(h.Functions) {
		return nil, fmt.Errorf("%d of %d functions are understood", len(h.Functions), n)
	}
	return h, nil
}

// variables returns the fields or parameters of a text. Parameters are needed unless comment says that they may be NULL.
func variables(text, separator, comment string, handles map[string]bool) (all []variable, err error) {
	if text == "void" {
		return nil, nil
	}
	mayBeNull := map[string]bool{"batch": true}
	for _, found := range optional.FindAllStringSubmatch(comment, -1) {
		mayBeNull[found[1]] = true
	}
	for one := range strings.SplitSeq(text, separator) {
		one = strings.Join(strings.Fields(one), " ")
		found := declared.FindStringSubmatch(one)
		if found == nil {
			return nil, fmt.Errorf("%q is not understood", one)
		}
		v := variable{C: found[1], Name: found[2], Python: ctype(strings.TrimSpace(found[1]), handles)}
		if found[3] != "" {
			v.Python += " * " + found[3]
		}
		if n := len(all); v.Name == "count" && n > 0 {
			all[n-1].Needed = all[n-1].Python == "POINTER(c_int32)" // Go checks arrays of structures, of which there may be none
		}
		pointer := strings.HasSuffix(v.C, "*")
		v.Result = strings.HasSuffix(v.C, "**")
		v.Needed = pointer && v.Python != "c_void_p" && !mayBeNull[v.Name]
		switch {
		case pointer && v.Python == "c_void_p":
			v.Cast = "(uintptr_t)"
		case v.Result && v.C != "char **":
			v.Cast = "(uintptr_t *)"
		case pointer && strings.HasPrefix(v.C, "const "):
			v.Cast = "(" + strings.TrimPrefix(v.C, "const ") + ")"
		}
		of := strings.TrimSpace(cmp.Or(strings.Trim(v.Cast, "()"), v.C))
		target := strings.TrimRight(of, " *")
		v.Go = strings.Repeat("*", strings.Count(of, "*")) + "C." + target
		all = append(all, v)
	}
	return all, nil
}

// ctype returns the name in Python of a type of C.
func ctype(of string, handles map[string]bool) string {
	target, pointer := strings.CutSuffix(strings.TrimPrefix(of, "const "), " *")
	name, ours := strings.CutPrefix(target, "tc_")
	switch {
	case of == "void":
		return "None"
	case of == "tc_status":
		return "c_int"
	case of == "size_t":
		return "c_size_t"
	case of == "const char *":
		return "c_char_p"
	case strings.HasSuffix(of, "**"):
		return "POINTER(c_void_p)"
	case of == "int32_t *": // a function writes one
		return "POINTER(c_int32)"
	case !pointer:
		return "c_" + strings.TrimSuffix(of, "_t")
	case ours && !handles[name]:
		return "POINTER(" + class(name) + ")"
	}
	return "c_void_p"
}

// class returns the name of a structure's class.
func class(name string) string {
	var out strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		out.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return out.String()
}
