package docs

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables of metrics")

// tables are the tables of metrics in documents: of which structs, and which attributes the code gives to all of a struct, beside those that the text above
// the table names.
var tables = []struct {
	file, name string
	structs    []measured
}{
	{"tracing.md", "cache", []measured{
		{"cache.TableStats", "tensorcache.table.name"}, {"cache.missedRows", "tensorcache.table.name tensorcache.miss.reason"},
		{"cache.cacheDerived", ""}, {"cache.Changes", ""}, {"cache.tableDerived", "tensorcache.table.name"}, {"cache.Stats", ""},
		{"cache.DeviceStats", "tensorcache.device.index"}, {"cache.BudgetEstimate", "tensorcache.budget.multiple"},
	}},
	{"tracing.md", "resident tables", []measured{{"cache.ResidentStats", ""}, {"cache.ResidentRange", "tensorcache.row"}}},
	{"tracing.md", "tables of pages", []measured{
		{"cache.pagesDerived", ""}, {"cache.TierStats", ""}, {"cache.StoreStats", "tensorcache.tier tensorcache.store.name"},
		{"cache.readTime", "tensorcache.tier tensorcache.store.name"},
	}},
	{"tracing.md", "listeners", []measured{{"serve/resp.counted", ""}, {"serve/resp.countedCuts", "reason"}, {"serve/resp.countedCalls", "command"}, {"serve/resp.countedLatency", "command le"}, {"serve/web.counted", ""}, {"serve/web.timed", "http.route http.response.status_code"}}},
	{"tracing.md", "service", []measured{
		{"serve/daemon.build", "version commit go cuda"}, {"serve/daemon.service", ""}, {"serve/daemon.changes", ""}, {"serve/daemon.snapshots", ""},
		{"serve/daemon.process", ""}, {"internal/telemetry.spanCounts", ""},
	}},
	{"cluster.md", "cluster", []measured{{"pages/cluster.NodeStats", "server.address"}, {"pages/cluster.Stats", ""}}},
}

type measured struct{ name, with string }

// structsOf returns, by "folder.Name", the tags of the structs of the repository with fields that are metrics.
func structsOf(t *testing.T, root string) map[string][]reflect.StructTag {
	t.Helper()
	all := map[string][]reflect.StructTag{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(source), `metric:"`) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if of, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range of.Fields.List {
					if f.Tag == nil {
						continue
					}
					text, _ := strconv.Unquote(f.Tag.Value)
					if tag := reflect.StructTag(text); tag.Get("metric") != "" {
						name := filepath.ToSlash(folder) + "." + spec.Name.Name
						all[name] = append(all[name], tag)
					}
				}
			}
			return true
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	kinds  = map[string]string{"counter": "counter", "level": "up-down counter", "gauge": "gauge", "histogram": "histogram"}
	goName = regexp.MustCompile(`\b[A-Z][A-Za-z]+\.[A-Z][A-Za-z]+\b`)
)

// tableOf returns a table: a line for each metric.
func tableOf(t *testing.T, of []measured, tags map[string][]reflect.StructTag) string {
	type line struct {
		name, kind, unit, help string
		with, values           []string
	}
	var lines []*line
	for _, s := range of {
		if len(tags[s.name]) == 0 {
			t.Errorf("%s has no metrics", s.name)
		}
		for _, tag := range tags[s.name] {
			name := tag.Get("metric")
			i := slices.IndexFunc(lines, func(l *line) bool { return l.name == name })
			if i < 0 {
				i, lines = len(lines), append(lines, &line{name: name, kind: tag.Get("kind"), with: strings.Fields(s.with)})
			}
			l := lines[i]
			if kinds[l.kind] == "" || tag.Get("kind") != l.kind || tag.Get("unit") != "" && l.unit != "" || (tag.Get("unit") == "") != (tag.Get("help") == "") {
				t.Errorf("%s: %s must have one of the kinds %v, and unit and help in one field: %s", s.name, name, kinds, tag)
			}
			l.unit, l.help = cmp.Or(l.unit, tag.Get("unit")), cmp.Or(l.help, tag.Get("help"))
			for with := range strings.SplitSeq(tag.Get("with"), ",") {
				if key, value, ok := strings.Cut(with, "="); ok {
					l.with, l.values = append(l.with, key), append(l.values, value)
				}
			}
		}
	}
	var b strings.Builder
	b.WriteString("| name | kind | unit | attributes | meaning |\n|---|---|---|---|---|\n")
	for _, l := range lines {
		if l.unit == "" {
			t.Errorf("%s must have a unit", l.name)
		}
		for _, value := range slices.Compact(slices.Sorted(slices.Values(l.values))) {
			l.help = regexp.MustCompile(`\b`+value+`\b`).ReplaceAllString(l.help, "`$0`")
		}
		help := goName.ReplaceAllString(l.help, "`$0`")
		var with []string
		for _, key := range l.with {
			if key = "`" + key + "`"; !slices.Contains(with, key) {
				with = append(with, key)
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s |\n", l.name, kinds[l.kind], l.unit, strings.Join(with, ", "), strings.TrimSuffix(help, "."))
	}
	return strings.ReplaceAll(b.String(), "|  |", "| |")
}

// TestMetrics_Tables: the documents' tables of metrics are those that the tags of the code declare, all of them. -update rewrites the tables.
func TestMetrics_Tables(t *testing.T) {
	t.Parallel()
	tags, listed := structsOf(t, ".."), map[string]bool{}
	for _, table := range tables {
		b, err := os.ReadFile(table.file)
		if err != nil {
			t.Fatal(err)
		}
		begin := fmt.Sprintf("<!-- metrics: %s; go test ./docs -run Metrics -update -->\n", table.name)
		before, rest, ok := strings.Cut(string(b), begin)
		have, after, closed := strings.Cut(rest, "<!-- end -->\n")
		if !ok || !closed {
			t.Fatalf("%s must have a block that begins with %q and ends with <!-- end -->", table.file, begin)
		}
		want := tableOf(t, table.structs, tags)
		if *update {
			if err := os.WriteFile(table.file, []byte(before+begin+want+"<!-- end -->\n"+after), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if have != want {
			t.Errorf("%s, metrics of %s: the code has\n%s\nthe document\n%s", table.file, table.name, want, have)
		}
		for _, s := range table.structs {
			listed[s.name] = true
		}
	}
	for name := range tags {
		if !listed[name] && !strings.HasPrefix(name, "internal/metrics.") {
			t.Errorf("the metrics of %s are in no document", name)
		}
	}
}
