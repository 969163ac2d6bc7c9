package docs

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/serve/daemon"
)

// TestDocs_Options: every name in the table of options.md is one.
func TestDocs_Options(t *testing.T) {
	t.Parallel()
	flags, bench := daemon.Flags(new(daemon.Config)), read(t, "cachebench-flags.md")
	python, header := read(t, "../python/tensorcache/_open.py"), read(t, "../capi/tensorcache.h")
	name := regexp.MustCompile("`([^`]*)`")
	known := []func(string) bool{
		func(s string) bool {
			of, key, _ := strings.Cut(s, "[")
			return strings.Contains(python, "\n    "+of+": ") && (key == "" || strings.Contains(python, strings.Trim(key, `"]`)))
		},
		func(s string) bool {
			at := reflect.TypeFor[cache.Options]()
			if method, ok := strings.CutPrefix(s, "Table."); ok {
				_, there := reflect.TypeFor[cache.Table]().MethodByName(method)
				return there
			}
			for part := range strings.SplitSeq(s, ".") {
				field, there := at.FieldByName(part)
				if !there {
					return false
				}
				at = field.Type
			}
			return true
		},
		func(s string) bool { return regexp.MustCompile(`\n\t[a-z0-9_ ]+[ *]` + s + ";").MatchString(header) },
		func(s string) bool {
			s, _, _ = strings.Cut(s, " ")
			return flags.Lookup(s[2:]) != nil || strings.Contains(bench, "      "+s+" ")
		},
		func(s string) bool {
			return flags.Lookup(strings.ReplaceAll(s, "_", "-")) != nil || strings.Contains(bench, "      --"+strings.ReplaceAll(s, "_", "-")+" ") || strings.Contains(flags.Lookup("table").Usage, s+"=")
		},
	}
	rows := 0
	for line := range strings.Lines(read(t, "options.md")) {
		cells := strings.Split(line, "|")
		if len(cells) != len(known)+3 || strings.HasPrefix(cells[1], "---") || strings.Contains(cells[1], " option") {
			continue
		}
		rows++
		for i, is := range known {
			if found := name.FindStringSubmatch(cells[i+2]); found == nil || !is(found[1]) {
				t.Errorf("%s: there is no %s", strings.TrimSpace(cells[1]), cells[i+2])
			}
		}
	}
	if rows < 12 {
		t.Errorf("%d options", rows)
	}
}
