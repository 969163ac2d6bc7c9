package report

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed html/page.tmpl html/style.css html/page.js html/vega
var parts embed.FS

// HTMLOptions say what a page has beside its results.
type HTMLOptions struct {
	// Title is "cachebench report" if empty.
	Title string
	// Date is shown as it is; without it the same results give the same page at any time.
	Date string
}

// HTML writes one page about the results, which needs no other file and no network.
func HTML(w io.Writer, r *Results, o HTMLOptions) error {
	p := pageView{HTMLOptions: o, Results: r}
	p.Title = cmp.Or(o.Title, "cachebench report")
	for _, s := range sections(r) {
		if len(s.Tables)+len(s.Charts) == 0 {
			p.LeftOut = append(p.LeftOut, s.Missing)
			continue
		}
		p.Sections = append(p.Sections, s)
	}
	return p.write(w)
}

// pageView is what the template shows.
type pageView struct {
	HTMLOptions
	*Results
	Policy   string
	Style    template.CSS
	Scripts  []template.JS
	Sections []section
	LeftOut  []string
}

func (p *pageView) write(w io.Writer) error {
	p.Style, p.Scripts = template.CSS(part("html/style.css")), scripts()
	// The browser runs and loads what is in the page only.
	p.Policy = "default-src 'none'; style-src 'sha256-" + digest(string(p.Style)) + "'; script-src"
	for _, s := range p.Scripts {
		p.Policy += " 'sha256-" + digest(string(s)) + "'"
	}
	p.Policy += "; img-src data:; base-uri 'none'; form-action 'none'"
	t, err := template.ParseFS(parts, "html/page.tmpl")
	if err == nil {
		err = t.Execute(w, p)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// scripts are Vega, Vega-Lite and the interpreter of Vega's expressions, as they are published, under their licence, and the page's own script.
// The interpreter is published as a module only; its one import and its one export become variables.
func scripts() []template.JS {
	licence := "/*!\nVega, Vega-Lite and vega-interpreter, " + strings.TrimSpace(part("html/vega/LICENSE")) + "\n*/\n"
	interpreter := part("html/vega/vega-interpreter.js")
	names, rest, _ := strings.Cut(strings.TrimPrefix(interpreter, "import "), " from 'vega-util';")
	body, _, _ := strings.Cut(rest, "export {")
	interpreter = "const expressionInterpreter = (() => { const " + names + " = vega;" + body + "return expression; })();\n"
	lite, _, _ := strings.Cut(part("html/vega/vega-lite.min.js"), "//# sourceMappingURL") // which browsers would look for
	return []template.JS{template.JS(licence + part("html/vega/vega.min.js")), template.JS(lite), template.JS(interpreter), template.JS(part("html/page.js"))}
}

func part(name string) string {
	b, err := parts.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// section is a part of the page.
type section struct {
	ID, Title, Lead string
	// Missing is the sentence that stands for the section without data.
	Missing string
	Tables  []tableView
	Charts  []*chart
}

// tableView is a table whose columns can be sorted.
type tableView struct {
	Caption string
	Header  []string
	// Texts is the number of leading columns that are no numbers.
	Texts int
	// Folded tables show their caption only until they are opened.
	Folded bool
	Rows   [][]entry
}

// entry is a cell of a table; Sort is what it is sorted by, its text if empty.
type entry struct {
	Text, Range, Sort string
	Bad               bool
}

func sections(r *Results) []section {
	g := newGrouping(r.Cells)
	return []section{
		configuration(g), summary(g), missRatios(r, g), codecTables(r), planTables(r),
	}
}
