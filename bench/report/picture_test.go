package report

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/browsertest"
)

// picture is charts beside each other for a document, in Vega-Lite.
type picture []byte

// pictureOf has the page's light colours in it: what shows documents knows no variables.
func pictureOf(title string, charts ...*chart) picture {
	var all []map[string]any
	for _, c := range charts {
		spec := c.spec()
		delete(spec, "config")
		delete(spec, "autosize")
		spec["width"], spec["height"] = 520, 280
		layers := spec["layer"].([]map[string]any)
		spec["layer"] = layers[:2] // without what is at the pointer
		delete(spec, "params")
		for _, l := range layers {
			filters := l["transform"].([]map[string]any)
			l["transform"] = filters[:len(filters)-1] // nothing is hidden
		}
		all = append(all, spec)
	}
	text, err := json.Marshal(map[string]any{
		"title": map[string]any{"text": title, "anchor": "middle"}, "hconcat": all, "config": chartConfig,
		"resolve": map[string]any{"scale": map[string]string{"color": "independent", "shape": "independent", "strokeDash": "independent"}},
	})
	if err != nil {
		panic(err)
	}
	text = regexp.MustCompile(`var\(--\w+\)`).ReplaceAllFunc(text, func(v []byte) []byte {
		return []byte(regexp.MustCompile(string(v[4:len(v)-1]) + `: (#\w+)`).FindStringSubmatch(part("html/style.css"))[1])
	})
	return picture(strings.Replace(string(text), `"disable":true`, `"disable":false`, 1))
}

// check compares a committed SVG file with the charts by the specification's digest, which is in its last line: browsers differ in how wide text is.
// -update draws the file anew in Chromium.
func (p picture) check(t *testing.T, path string) {
	t.Helper()
	made := "<!-- made by make gpu-docs of a Vega-Lite specification with SHA-256 " + fmt.Sprintf("%x", sha256.Sum256(p)) + " -->\n"
	if *update {
		if err := os.WriteFile(path, []byte(p.draw(t)+"\n"+made), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || !strings.HasSuffix(string(have), made) {
		t.Errorf("%s is not of the figures in docs/results; make gpu-docs rewrites it (%v)", path, err)
	}
}

func (p picture) draw(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, s := range scripts()[:3] {
		text.WriteString("<script>" + string(s) + "</script>\n")
	}
	path := filepath.Join(t.TempDir(), "vega.html")
	if err := os.WriteFile(path, []byte("<meta charset=utf-8>"+text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	b := browsertest.New(t)
	b.Open("file://" + path)
	return browsertest.Eval[string](b, fmt.Sprintf(`new vega.View(vega.parse(vegaLite.compile(%s).spec), {renderer: "none"}).toSVG()`, p))
}
