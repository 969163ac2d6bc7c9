//go:build cgo && linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestLibrary_Layout compares the sizes of structures, and the offsets and sizes of their fields, in C, in Go and in Python.
func TestLibrary_Layout(t *testing.T) {
	header, err := os.ReadFile("tensorcache.h")
	if os.IsNotExist(err) {
		t.Skip("the sources are not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	// A function that takes each structure, as tests cannot name types of C.
	goTypes := map[string]reflect.Type{}
	for _, function := range []any{tcgo_open, tcgo_attach, tcgo_listen, tcgo_opening_progress, tcgo_table_get_info, tcgo_device_get_info, tcgo_gather_pooled, newTraining, tcgo_model_read, tcgo_compress} {
		of := reflect.TypeOf(function)
		for i := range of.NumIn() {
			in := of.In(i)
			if in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice {
				in = in.Elem()
			}
			if _, name, ok := strings.Cut(in.Name(), "_Ctype_struct_"); ok {
				goTypes[name] = in
			}
		}
	}
	var inGo, inC, inPython strings.Builder
	code := regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(string(header), "")
	structures := regexp.MustCompile(`(?s)typedef struct (tc_\w+) \{(.*?)\n\}`).FindAllStringSubmatch(code, -1)
	for _, s := range structures {
		name, of := s[1], goTypes[s[1]]
		if of == nil {
			t.Fatalf("no function of Go takes a %s", name)
		}
		fmt.Fprintf(&inGo, "%s %d\n", name, of.Size())
		fmt.Fprintf(&inC, "printf(\"%s %%zu\\n\", sizeof(%s));\n", name, name)
		for _, field := range regexp.MustCompile(`(\w+)(?:\[\d+\])?;`).FindAllStringSubmatch(s[2], -1) {
			f, ok := of.FieldByName(field[1])
			if !ok {
				t.Fatalf("%s of Go lacks %s", name, field[1])
			}
			fmt.Fprintf(&inGo, "%s.%s %d %d\n", name, f.Name, f.Offset, f.Type.Size())
			fmt.Fprintf(&inC, "printf(\"%s.%s %%zu %%zu\\n\", offsetof(%s, %s), sizeof((%s *)0)->%s);\n", name, f.Name, name, f.Name, name, f.Name)
		}
		fmt.Fprintf(&inPython, "show(%q)\n", name)
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(source, []byte("#include <stdio.h>\n#include \"tensorcache.h\"\nint main(void)\n{\n"+inC.String()+"return 0;\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := command(cmp.Or(os.Getenv("CC"), "gcc"), "-I.", "-o", program, source); err != nil {
		t.Fatal(err)
	}
	want := run(t, program)
	if got := inGo.String(); got != want {
		t.Errorf("in Go:\n%s\nin C:\n%s", got, want)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	show := `
import ctypes, runpy
abi = runpy.run_path("../python/tensorcache/_abi.py")
def show(name):
    of = abi["".join(part.capitalize() for part in name.split("_")[1:])]
    print(name, ctypes.sizeof(of))
    for field, *_ in of._fields_:
        at = getattr(of, field)
        print(f"{name}.{field}", at.offset, at.size)
`
	if got := run(t, python, "-c", show+inPython.String()); got != want {
		t.Errorf("in Python:\n%s\nin C:\n%s", got, want)
	}
}
