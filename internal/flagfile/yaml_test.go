package flagfile

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestReadYAML_Values(t *testing.T) {
	const text = `# a comment
budget: 64MiB
resp: 127.0.0.1:6379
seed: 18446744073709551615
share: 1.5e-3
verify: true
name: |
  a: b
gpus: [0, 2]
tables:
  - file: "a,b.npy"
    name: users:eu
  - {file: c.npy, capacity: 12}
`
	want := []Setting{
		{Key: "budget", Value: "64MiB", Line: 2}, {Key: "resp", Value: "127.0.0.1:6379", Line: 3}, {Key: "seed", Value: "18446744073709551615", Line: 4},
		{Key: "share", Value: "1.5e-3", Line: 5}, {Key: "verify", Value: "true", Line: 6}, {Key: "name", Value: "a: b\n", Line: 7},
		{Key: "gpus", Value: "0,2", List: true, Line: 9},
		{Key: "tables", List: true, Records: []string{`"file=a,b.npy",name=users:eu`, `file=c.npy,capacity=12`}, Line: 10},
	}
	if got, err := ReadYAML([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	const asJSON = `{"budget": "1%", "gpus": [0],
 "tables": [{"file": "x.npy"}]}`
	want = []Setting{{Key: "budget", Value: "1%", Line: 1}, {Key: "gpus", Value: "0", List: true, Line: 1}, {Key: "tables", List: true, Records: []string{"file=x.npy"}, Line: 2}}
	if got, err := ReadYAML([]byte(asJSON)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestReadYAML_BadInput(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "must hold one YAML mapping: it is empty, or has comments only",
		"# a\n\n# b\n":                       "must hold one YAML mapping: it is empty, or has comments only",
		"---\n---\n":                         "must hold one YAML mapping: it is empty, or has comments only",
		"- 1":                                "must hold one YAML mapping",
		"budget":                             "must hold one YAML mapping",
		"a: 1\n---\nb: 2":                    "must hold one YAML mapping, not 2 documents",
		"a: 1\nb: 2\na: 3":                   "line 3: ",
		"a: 1\nb:":                           `line 2: key "b": value (nothing) must be a string, number, boolean or list`,
		"a:\n  b: 1":                         `line 1: key "a": value (b: 1) must be a string, number, boolean or list`,
		"a: []":                              `line 1: key "a": list ([]) must not be empty`,
		"a: [1, [2]]":                        `line 1: key "a": element 1: value ([2]) must be a string, number, boolean or mapping`,
		"a: [1, {b: 2}]":                     `line 1: key "a": elements must be all mappings or all values`,
		"a:\n- b: 1\n  c: [1]":               `line 1: key "a": element 0: line 3: c: [1] must be a key and a string, number or boolean`,
		"a: &x 1\nb: *x":                     `line 1: key "a": value (&x 1) must be`,
		"a: !!str 1":                         `line 1: key "a": value (!!str 1) must be`,
		"a: 1\n b: 2":                        "line ",
		"a: \"unterminated":                  "line 1: ",
		"{\"a\": 1":                          "line 1: ",
		strings.Repeat("[", 100) + "\n":      "",
		"tables:\n  - file: a\n   name: b\n": "",
	} {
		got, err := ReadYAML([]byte(text))
		if err == nil || got != nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\n got %v, %v\nwant %s…", text, got, err, want)
		}
	}
}

// TestApply_Lines: an error names the file, the line and the key; flags of the command line stay.
func TestApply_Lines(t *testing.T) {
	flags := func() (*pflag.FlagSet, *[]string, *int) {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		tables := f.StringArray("table", nil, "")
		n := f.Int("tries", 1, "")
		f.String("name", "", "")
		return f, tables, n
	}
	for text, want := range map[string]string{
		"tries: x":               `config F:1: key "tries": --tries ("x") must be a whole number`,
		"\n\nnaem: 1":            `config F:3: unknown key "naem"`,
		"Name: 1":                `config F:1: unknown key "Name": did you mean "name"?`,
		"name: [a, b]":           `config F:1: key "name": value (a,b) must not be a list`,
		"names:\n- a: 1\nx: 1":   "config F:3: unknown key \"x\"",
		"tabels:\n- a: 1":        `config F:1: unknown key "tabels" of a list of mappings`,
		"x: 1\ntries: 2\ny: [1]": "config F:1: unknown key \"x\"\nconfig F:3: unknown key \"y\"",
	} {
		f, _, _ := flags()
		settings, err := ReadYAML([]byte(text))
		if err == nil {
			err = Apply(f, "F", settings)
		}
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
	f, tables, n := flags()
	if err := f.Set("tries", "5"); err != nil {
		t.Fatal(err)
	}
	settings, err := ReadYAML([]byte("tries: 7\ntables: [{a: 1}, {b: 2}]"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Apply(f, "F", settings); err != nil || *n != 5 || !reflect.DeepEqual(*tables, []string{"a=1", "b=2"}) {
		t.Errorf("%v: tries %d, tables %q", err, *n, *tables)
	}
}

func FuzzReadYAML(f *testing.F) {
	for _, seed := range []string{``, `{}`, "a: 1\nb: [1, x]\nt:\n- c: d\n  e: f\n", `{"a":null}`, "a: &b 1\nc: *b", "a: |\n  x\n", "? a\n: b", "a: 'x\n\ny'", "\ta: 1", "a: !!binary x", "%YAML 1.2\n---\na: 1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		settings, err := ReadYAML(b)
		if err != nil {
			if settings != nil || err.Error() == "" {
				t.Fatalf("%v beside error %v", settings, err)
			}
			return
		}
		seen := map[string]bool{}
		for _, s := range settings {
			if s.Key == "" || seen[s.Key] || s.Records != nil && s.Value != "" {
				t.Fatalf("%q gave %+v", b, settings)
			}
			seen[s.Key] = true
		}
	})
}
