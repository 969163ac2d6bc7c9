package report

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
)

//go:embed html/page.tmpl html/plot.tmpl html/style.css html/chart.css html/plot.css html/page.js
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
	style, script := part("html/style.css")+part("html/chart.css"), part("html/page.js")
	page := struct {
		HTMLOptions
		*Results
		Policy   string
		Style    template.CSS
		Script   template.JS
		Sections []section
		LeftOut  []string
	}{HTMLOptions: o, Results: r, Style: template.CSS(style), Script: template.JS(script)}
	page.Title = cmp.Or(o.Title, "cachebench report")
	// The browser runs and loads what is in the page only.
	page.Policy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'", digest(style), digest(script))
	for _, s := range sections(r) {
		if len(s.Tables)+len(s.Charts) == 0 {
			page.LeftOut = append(page.LeftOut, s.Missing)
			continue
		}
		page.Sections = append(page.Sections, s)
	}
	return execute(w, "page.tmpl", page)
}

func execute(w io.Writer, name string, view any) error {
	t, err := template.ParseFS(parts, "html/*.tmpl")
	if err == nil {
		err = t.ExecuteTemplate(w, name, view)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
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
