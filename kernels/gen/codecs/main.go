// Command codecs writes what follows from the list of codecs, codec/codecs.list, from the KERNELS lines at the head of their headers,
// kernels/coder_NAME.h, and from kernels/tuning.h. It runs in the folder of package kernels:
//
//	codecs modules   prints the modules to compile, as build.sh does: module, source, macros
//	codecs go        writes coderlist.go and ../codec/registry/families.go
//
// A KERNELS line describes the kernels of one coder (coder.h):
//
//	// KERNELS name struct lanes=N [encode] [MACRO=value]...
//
// name is what codec.DeviceForm.Kernel says; the macros are the header's own. A TUNED line of tuning.h says what some coders have that is tuned:
//
//	// TUNED name...: [quads=N] [ahead=N] [alone=N] [wide=N] [shifts=N] [bytes=STRUCT] [bits=STRUCT] [built=STRUCT] [fill] [pairs] [single] [two] [fixed] [peers]
//
// Type coder of package kernels explains the words in lower case.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/internal/abi"
)

// raw is the coder of tables without a codec: it has a header and no package.
const raw = "raw"

// coder is a KERNELS line, and what TUNED lines say of it.
type coder struct {
	name, header, class string
	values              map[string]string // lanes, tunedNumbers and tunedStructs
	words               map[string]bool   // encode and tunedWords
	macros              []string
}

// What a TUNED line can have: numbers, structs of the coder's header and words.
var (
	tunedNumbers = []string{"quads", "ahead", "alone", "wide", "shifts"}
	tunedStructs = []string{"bytes", "bits", "built"}
	tunedWords   = []string{"fill", "pairs", "single", "two", "fixed", "peers"}
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("codecs: ")
	list := flag.String("list", "../codec/codecs.list", "the list of codecs")
	headers := flag.String("headers", ".", "the folders of headers, with commas between")
	to := flag.String("to", "..", "the folder below which Go files are written")
	flag.Parse()
	names, err := readList(*list)
	if err != nil {
		log.Fatal(err)
	}
	coders, err := readCoders(names, strings.Split(*headers, ","))
	if err != nil {
		log.Fatal(err)
	}
	switch flag.Arg(0) {
	case "modules":
		for _, c := range coders {
			for _, m := range c.modules() {
				fmt.Println(m)
			}
		}
	case "go":
		err = errors.Join(
			write(filepath.Join(*to, "kernels/coderlist.go"), coderTable(coders)), write(filepath.Join(*to, "codec/registry/families.go"), families(names)),
		)
	default:
		err = errors.New("usage: codecs [flags] modules|go")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// readList returns the names in a list of codecs.
func readList(path string) (names []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		switch words := strings.Fields(line); {
		case len(words) > 1 || len(words) == 1 && slices.Contains(names, words[0]):
			return nil, fmt.Errorf("%s: line %q must be one name, named once", path, strings.TrimSpace(line))
		case len(words) == 1:
			names = append(names, words[0])
		}
	}
	return names, nil
}

// readCoders returns the coders of the codecs' headers, those of raw first.
func readCoders(names, folders []string) (all []coder, err error) {
	seen := map[string]bool{}
	for _, name := range append([]string{raw}, names...) {
		header := "coder_" + name + ".h"
		text, err := findHeader(header, folders)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			rest, ok := strings.CutPrefix(line, "// KERNELS ")
			if !ok {
				continue
			}
			c, err := parse(rest, header)
			if err == nil && seen[c.name] {
				err = fmt.Errorf("coder (%s) is there twice", c.name)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", header, err)
			}
			seen[c.name] = true
			all = append(all, c)
		}
	}
	text, err := findHeader(tuning, folders)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "// TUNED "); ok {
			if err := tune(all, rest); err != nil {
				return nil, fmt.Errorf("%s: %w", tuning, err)
			}
		}
	}
	return all, nil
}

// tuning is the header with the TUNED lines.
const tuning = "tuning.h"

// tune reads a TUNED line behind its first word.
func tune(coders []coder, line string) error {
	names, words, ok := strings.Cut(line, ":")
	if !ok {
		return fmt.Errorf("line %q must have names, a colon and words", line)
	}
	for _, name := range strings.Fields(names) {
		i := slices.IndexFunc(coders, func(c coder) bool { return c.name == name })
		if i < 0 {
			return fmt.Errorf("there is no coder %s", name)
		}
		for _, word := range strings.Fields(words) {
			c := &coders[i]
			key, value, has := strings.Cut(word, "=")
			switch {
			case c.values[key] != "" || c.words[key]:
				return fmt.Errorf("coder %s: %s is there twice", name, key)
			case has && slices.Contains(slices.Concat(tunedNumbers, tunedStructs), key):
				c.values[key] = value
			case !has && slices.Contains(tunedWords, key):
				c.words[key] = true
			default:
				return fmt.Errorf("coder %s: %q is not understood", name, word)
			}
			if n, err := strconv.Atoi(value); slices.Contains(tunedNumbers, key) && (err != nil || n < 1 || key == "ahead" && n > abi.CoderAhead) {
				return fmt.Errorf("coder %s: %s (%q) must be a positive number, and ahead at most %d", name, key, value, abi.CoderAhead)
			}
		}
	}
	return nil
}

// findHeader returns the text of a header, "" where no folder has it.
func findHeader(name string, folders []string) (text string, err error) {
	for _, folder := range folders {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return string(text), err
		}
	}
	return "", nil
}

// parse reads a KERNELS line behind its first word.
func parse(line, header string) (coder, error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return coder{}, fmt.Errorf("line %q must have a name and a struct", line)
	}
	c := coder{name: words[0], class: words[1], header: header, values: map[string]string{}, words: map[string]bool{}}
	for _, word := range words[2:] {
		key, value, has := strings.Cut(word, "=")
		switch {
		case has && key == "lanes":
			c.values[key] = value
		case has && strings.ToUpper(key) == key:
			c.macros = append(c.macros, "-D"+word)
		case word == "encode":
			c.words[key] = true
		default:
			return c, fmt.Errorf("coder %s: %q is not understood", c.name, word)
		}
	}
	if !slices.Contains([]string{"8", "16", "32"}, c.values["lanes"]) {
		return c, fmt.Errorf("coder %s: lanes (%q) must be 8, 16 or 32", c.name, c.values["lanes"])
	}
	return c, nil
}

// floats returns the lengths in bytes, 4, 2 and 1, of floats that rows of the coder can have and whose rows can be added up, as a sum. A coder says the one length
// of its elements by ROW_ELEMENT in bytes or by ROW_WIDTH in bits.
func (c *coder) floats() int {
	for _, macro := range c.macros {
		switch key, value, _ := strings.Cut(macro, "="); {
		case key == "-DROW_ELEMENT" && (value == "1" || value == "2" || value == "4"):
			return int(value[0] - '0')
		case key == "-DROW_WIDTH" && value == "16":
			return 2
		case key == "-DROW_WIDTH" && value == "32":
			return 4
		case key == "-DROW_ELEMENT", key == "-DROW_WIDTH":
			return 0
		}
	}
	return 4 + 2 + 1
}

// modules returns what is compiled for a coder.
func (c *coder) modules() (lines []string) {
	var hits []string // macros of the modules for hits
	macros := append([]string{"-DROW_CODER=" + c.class, `-DROW_HEADER="` + c.header + `"`, "-DROW_LANES=" + c.values["lanes"]}, c.macros...)
	for _, key := range []string{"bytes", "bits", "ahead"} {
		if value := c.values[key]; value != "" {
			macros = append(macros, "-DROW_"+strings.ToUpper(key)+"="+value)
		}
	}
	if built := c.values["built"]; built != "" {
		hits = append(hits, "-DROW_BUILT="+built)
	}
	add := func(op, source string, more ...string) {
		line := op + "_" + c.name + " " + source
		for _, m := range slices.Concat(macros, more) {
			line += " '" + m + "'"
		}
		lines = append(lines, line)
	}
	decode, encode := "decode", "encode"
	if c.words["pairs"] {
		macros = append(macros, "-DROW_PAIRS")
		decode, encode = "decode_pairs", "encode_quads"
		add("decodeWords", decode, "-DROW_KIND=2")
		add("buddyWords", decode, "-DROW_KIND=2", "-DROW_BUDDY")
		add("findWords", decode, "-DROW_KIND=2", "-DROW_FIND")
		if c.words["two"] {
			add("decodeTwo", "decode_two", "-DROW_KIND=0")
			add("buddyTwo", "decode_two", "-DROW_KIND=0", "-DROW_BUDDY")
			add("findTwo", "decode_two", "-DROW_KIND=0", "-DROW_FIND")
		}
		if c.words["two"] && c.words["fixed"] {
			add("decodeTwoFixed", "decode_two", "-DROW_KIND=1")
			add("buddyTwoFixed", "decode_two", "-DROW_KIND=1", "-DROW_BUDDY")
			add("findTwoFixed", "decode_two", "-DROW_KIND=1", "-DROW_FIND")
		}
		if c.words["fixed"] {
			add("decodeFixed", decode, "-DROW_KIND=1")
			add("buddyFixed", decode, "-DROW_KIND=1", "-DROW_BUDDY")
			add("findFixed", decode, "-DROW_KIND=1", "-DROW_FIND")
			add("findFixedDouble", "decode_double", "-DROW_KIND=1")
			add("buddyFixedDouble", "decode_double", "-DROW_KIND=1", "-DROW_BUDDY")
		}
		macros = append(macros, "-DROW_KIND=0")
		add("find", decode, "-DROW_FIND")
		add("findDouble", "decode_double")
		add("buddyDouble", "decode_double", "-DROW_BUDDY")
	}
	add("decode", decode, hits...)
	if c.words["peers"] {
		add("decodePeers", decode, append(hits, "-DROW_PEERS")...)
	}
	add("buddy", decode, "-DROW_BUDDY")
	if c.values["bytes"] != "" {
		add("find", decode, "-DROW_FIND")
	}
	add("fetch", "fetch")
	add("serve", "serve")
	add("replay", "serve", "-DROW_REPLAY")
	add("share", "share")
	if floats := c.floats() &^ 1; floats != 0 {
		if c.words["single"] {
			add("pooled", "pooled", fmt.Sprint("-DROW_FLOATS=", floats))
		}
		add("pooledTables", "pooled", fmt.Sprint("-DROW_FLOATS=", floats), "-DROW_TABLES", "-DROW_REPLAY")
		if c.words["pairs"] {
			add("pooledPairs", "pooled_pairs")
			add("pooledPairsTables", "pooled_pairs", "-DROW_TABLES", "-DROW_REPLAY")
		}
		if c.values["bytes"] != "" {
			add("pooledBytes", "pooled_bytes")
			add("pooledBytesTables", "pooled_bytes", "-DROW_TABLES", "-DROW_REPLAY")
		}
		if shifts := c.values["shifts"]; shifts != "" {
			add("pooledShifts", "pooled_pairs", "-DROW_SHIFTS="+shifts)
			add("pooledShiftsTables", "pooled_pairs", "-DROW_SHIFTS="+shifts, "-DROW_TABLES", "-DROW_REPLAY")
		}
	}
	if c.floats()&1 != 0 {
		add("pooledFloat8Tables", "pooled", "-DROW_FLOATS=1", "-DROW_FLOAT8", "-DROW_TABLES", "-DROW_REPLAY")
	}
	if c.words["encode"] {
		add("encode", encode)
	}
	return lines
}

const generated = "// Code generated by kernels/gen/codecs from codec/codecs.list. DO NOT EDIT.\n\n"

// coderTable returns the Go table of the coders.
func coderTable(coders []coder) []byte {
	var out bytes.Buffer
	out.WriteString(generated + "package kernels\n\n// coders are the kernels, by the name that codec.DeviceForm.Kernel has and their modules end in.\nvar coders = map[string]coder{\n")
	for _, c := range coders {
		fmt.Fprintf(&out, "%q: {lanes: %s", c.name, c.values["lanes"])
		for _, key := range tunedNumbers {
			if c.values[key] != "" {
				fmt.Fprintf(&out, ", %s: %s", key, c.values[key])
			}
		}
		for _, key := range slices.Concat(tunedStructs, tunedWords) {
			if (c.values[key] != "" || c.words[key]) && key != "single" { // which Go sees by the kernels that there are
				fmt.Fprintf(&out, ", %s: true", key)
			}
		}
		if c.words["encode"] {
			out.WriteString(", encodes: true")
		}
		if floats := c.floats(); floats != 0 {
			fmt.Fprintf(&out, ", floats: %d", floats)
		}
		out.WriteString("},\n")
	}
	out.WriteString("}\n")
	return out.Bytes()
}

// families returns the registry's list of families.
func families(names []string) []byte {
	var out bytes.Buffer
	out.WriteString(generated + "package registry\n\nimport (\n\"slices\"\n\n\"github.com/tensorcache/tensorcache/codec\"\n")
	for _, name := range slices.Sorted(slices.Values(names)) {
		fmt.Fprintf(&out, "%q\n", "github.com/tensorcache/tensorcache/codec/"+name)
	}
	out.WriteString(")\n\n// families, in the order in which they are listed and tried.\nvar families = slices.Concat([]codec.Family{}")
	for _, name := range names {
		fmt.Fprintf(&out, ", %s.Families", name)
	}
	out.WriteString(")\n")
	return out.Bytes()
}

func write(path string, source []byte) error {
	source, err := format.Source(source)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, source, 0o644)
}
