// Package docs tests the documents.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	mdLink   = regexp.MustCompile(`\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)`)
	mdCode   = regexp.MustCompile("`[^`]*`")
	mdTarget = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// TestDocs_Links checks that every relative link in the repository's Markdown files names a file or folder, and its anchor a heading.
func TestDocs_Links(t *testing.T) {
	t.Parallel()
	faults, links, err := badLinks("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Error(f)
	}
	if links < 50 {
		t.Errorf("links (%d) must be at least 50: the documents have more", links)
	}
}

// TestDocs_LinksFaults checks what counts as a fault, on documents made for it.
func TestDocs_LinksFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.md": "# A\n[ok](b/c.md#two-words-1) [ok](#a) [ok](b) [web](https://example.com/x.md) `[code](none.md)`\n```\n[fenced](none.md)\n```\n" +
			"![picture](none.svg) [gone](b/none.md) [anchor](b/c.md#three) [own](#b)\n",
		"b/c.md":     "# `Two` *words*!\n## Two words\n[ok](../a.md) [up](../../a.md)\n",
		"build/d.md": "[ignored](none.md)\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	faults, links, err := badLinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(faults, "\n")
	want := strings.Join([]string{
		"a.md: link (none.svg) must name a file", "a.md: link (b/none.md) must name a file", "a.md: link (b/c.md#three) must name a heading",
		"a.md: link (#b) must name a heading", filepath.Join("b", "c.md") + ": link (../../a.md) must stay in the repository",
	}, "\n")
	if got != want || links != 9 {
		t.Errorf("%d links, faults\n%s\nwant 9,\n%s", links, got, want)
	}
}

// badLinks returns the faulty relative links of the Markdown files below root, and how many relative links there are.
func badLinks(root string) (faults []string, links int, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (name == "build" || strings.HasPrefix(name, ".")) {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, line := range prose(string(text)) {
			for _, match := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(line, "``"), -1) {
				if target := match[1]; !strings.Contains(target, "://") && !strings.HasPrefix(target, "mailto:") {
					links++
					if fault := badLink(root, name, target); fault != "" {
						faults = append(faults, fmt.Sprintf("%s: link (%s) %s", name, target, fault))
					}
				}
			}
		}
		return nil
	})
	return faults, links, err
}

// badLink says what is wrong with a link of a file, both relative to root; "" if nothing is.
func badLink(root, file, target string) string {
	path, anchor, _ := strings.Cut(target, "#")
	to := file
	if path != "" {
		to = filepath.Join(filepath.Dir(file), filepath.FromSlash(path))
	}
	if !filepath.IsLocal(to) {
		return "must stay in the repository"
	}
	if _, err := os.Stat(filepath.Join(root, to)); err != nil {
		return "must name a file"
	}
	if anchor == "" {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(root, to))
	if err != nil {
		return err.Error()
	}
	seen := map[string]int{}
	for _, line := range prose(string(text)) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		name := slug(title)
		n := seen[name]
		seen[name]++
		if n > 0 {
			name = fmt.Sprintf("%s-%d", name, n)
		}
		if name == anchor {
			return ""
		}
	}
	return "must name a heading"
}

// prose returns the lines that are not in a fenced block of code.
func prose(text string) []string {
	var lines []string
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			lines = append(lines, strings.TrimRight(line, "\r\n"))
		}
	}
	return lines
}

// slug is the anchor that GitHub gives a heading.
func slug(title string) string {
	title = mdTarget.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return r
		}
		return -1
	}, title)
}
