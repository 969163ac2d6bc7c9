package report

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/browsertest"
)

// tip returns the text of the tooltip, "" if there is none.
func tip(b *browsertest.Browser) string {
	return browsertest.Eval[string](b, `(() => { const t = document.getElementById("tip"); return t.hidden ? "" : t.innerText; })()`)
}

// TestHTML_InBrowser: the page of every kind of result, harmful names among them, works.
func TestHTML_InBrowser(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	dir := exampleFolder(t)
	text := page(t, dir, HTMLOptions{Title: hostile, Date: hostile})
	file := filepath.Join(dir, "report.html")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	address := (&url.URL{Scheme: "file", Path: file}).String()
	still := map[string]string{"name": "prefers-reduced-motion", "value": "reduce"} // a page that still scrolls would be missed
	b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{still}}, nil)
	b.Open(address)

	// Nothing that a name says is done.
	if browsertest.Eval[bool](b, `"harmed" in window`) {
		t.Error("a script from the results ran")
	}
	if n := browsertest.Eval[int](b, `document.querySelectorAll("img, iframe, object, embed, script[src], link:not([rel=icon])").length`); n != 0 {
		t.Errorf("%d elements of foreign content", n)
	}
	if title := browsertest.Eval[string](b, `document.title`); title != strings.TrimSuffix(hostile, "\x01") { // titles drop spaces and controls at their ends
		t.Errorf("title %q", title)
	}

	// Links.
	for _, href := range browsertest.Eval[[]string](b, `[...document.querySelectorAll("a[href]")].map(a => a.getAttribute("href"))`) {
		if id, ok := strings.CutPrefix(href, "#"); ok {
			if !browsertest.Eval[bool](b, fmt.Sprintf(`document.getElementById(%q) !== null`, id)) {
				t.Errorf("link %s leads nowhere", href)
			}
			continue
		}
		t.Errorf("link %s leaves the page", href)
	}
	b.Mouse(b.Middle(`nav a[href="#codecs"]`), true)
	if y := browsertest.Eval[float64](b, `document.getElementById("codecs").getBoundingClientRect().top`); y < 0 || y > 400 {
		t.Errorf("a click on “Codecs” brings it to %v of the window", y)
	}

	// Every chart has a tooltip under the pointer, which says what the table says.
	ids := browsertest.Eval[[]string](b, `[...document.querySelectorAll("figure.chart")].map(f => f.id)`)
	if len(ids) < 6 {
		t.Errorf("charts %v: want at least 6", ids)
	}
	for _, id := range ids {
		b.Mouse(b.Middle("#"+id+" .drawing svg"), false)
		lines := strings.Split(tip(b), "\n")
		rows := browsertest.Eval[[][]string](b, fmt.Sprintf(`(() => {
			const f = document.getElementById(%q), axis = f.querySelector("thead th").textContent + " ";
			const rows = [...f.querySelectorAll("tbody tr")].filter(r => axis + r.cells[0].textContent === %q);
			return rows.map(row => [...row.cells].map(c => c.textContent).slice(1).filter(c => c));
		})()`, id, lines[0]))
		if !slices.ContainsFunc(rows, func(row []string) bool { // neighbours may be equal but for rounding
			return len(row) > 0 && !slices.ContainsFunc(row, func(value string) bool { return !slices.Contains(lines, value) })
		}) {
			t.Errorf("%s: tooltip %q is not a row of the table: %q", id, lines, rows)
		}
		if browsertest.Eval[int](b, fmt.Sprintf(`document.querySelectorAll("#" + %q + " .mark-rule line[stroke], #" + %q + " .layer_2_marks *").length`, id, id)) == 0 {
			t.Errorf("%s: no line at the pointer", id)
		}
		if id == "miss-ratio-curve-1" || id == "measured-miss-ratio" {
			b.Screenshot(id + "-tooltip.png")
		}
	}
	b.Mouse(browsertest.Point{X: 5, Y: 5}, false)
	if tip := tip(b); tip != "" {
		t.Errorf("tooltip %q stays", tip)
	}

	// Keys: from the first to the last row and away.
	for id, axis := range map[string]string{"miss-ratio-curve-1": "size of the cache ", "measured-miss-ratio": "budget of the cache "} {
		b.Middle("#" + id)
		browsertest.Eval[any](b, fmt.Sprintf(`document.querySelector("#%s .drawing svg").focus({preventScroll: true})`, id))
		name := func(row int) string {
			return axis + browsertest.Eval[string](b, fmt.Sprintf(`[...document.querySelectorAll("#%s tbody tr")].at(%d).cells[0].textContent`, id, row))
		}
		for _, step := range []struct {
			key string
			row int
		}{{"ArrowRight", 0}, {"ArrowDown", 1}, {"ArrowLeft", 0}, {"ArrowUp", 0}, {"End", -1}, {"ArrowRight", -1}, {"Home", 0}} {
			b.Press(step.key)
			if tip, want := tip(b), name(step.row); !strings.HasPrefix(tip, want+"\n") {
				t.Errorf("%s: %s shows %q, want %q", id, step.key, tip, want)
			}
		}
		b.Press("Escape")
		if tip := tip(b); tip != "" {
			t.Errorf("%s: Escape leaves %q", id, tip)
		}
	}

	// A series can be hidden, from the tooltip too, and shown again.
	const button, line = "#miss-ratio-curve-1 .legend li:first-child button", `#miss-ratio-curve-1 .drawing .mark-line path`
	name := browsertest.Eval[string](b, fmt.Sprintf(`document.querySelector(%q).textContent`, button))
	all := browsertest.Eval[int](b, fmt.Sprintf(`document.querySelectorAll(%q).length`, line))
	for _, hidden := range []bool{true, false} {
		b.Mouse(b.Middle(button), true)
		lines := browsertest.Eval[int](b, fmt.Sprintf(`document.querySelectorAll(%q).length`, line))
		b.Mouse(b.Middle("#miss-ratio-curve-1 .drawing svg"), false)
		if tip := tip(b); (lines < all) != hidden || slices.Contains(strings.Split(tip, "\n"), name) == hidden {
			t.Errorf("hidden %v: %d of %d lines, tooltip %q", hidden, lines, all, tip)
		}
	}

	// A chart is saved as a PNG picture, as it is shown.
	browsertest.Eval[any](b, `HTMLAnchorElement.prototype.click = function () { window.saved = [this.download, this.href]; }`)
	for _, id := range []string{"miss-ratio-curve-1", "measured-miss-ratio"} {
		b.Mouse(b.Middle("#"+id+" button.png"), true)
		saved := browsertest.Eval[[]string](b, `new Promise(done => { const wait = () => window.saved ? done(window.saved) : setTimeout(wait, 10); wait(); })`)
		browsertest.Eval[any](b, `delete window.saved`)
		data, ok := strings.CutPrefix(saved[1], "data:image/png;base64,")
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil || !ok || saved[0] != id+".png" {
			t.Fatalf("%s is saved as %s: %.40s, %v", id, saved[0], saved[1], err)
		}
		picture, err := png.Decode(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		size, colours := picture.Bounds().Size(), map[color.Color]int{}
		for x := range size.X {
			for y := range size.Y {
				colours[picture.At(x, y)]++
			}
		}
		if blue := colours[color.RGBA{0x00, 0x72, 0xb2, 0xff}] + colours[color.NRGBA{0x00, 0x72, 0xb2, 0xff}]; size.X < 1600 || size.Y < 700 || blue < 500 {
			t.Errorf("%s: %v pixels, %d of the first series, %d colours", id, size, blue, len(colours))
		}
		if dir := os.Getenv("TENSORCACHE_SCREENSHOTS"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, saved[0]), text, 0o644); err != nil {
				t.Error(err)
			}
		}
	}

	// Headings sort: numbers by value, ascending, then descending.
	const column = `[...document.querySelectorAll("#summary thead th")].findIndex(h => h.textContent === "hit rate")`
	b.Mouse(b.Middle(`#summary th:nth-child(`+fmt.Sprint(browsertest.Eval[int](b, column)+1)+`) button`), true)
	values := func() []float64 {
		return browsertest.Eval[[]float64](b, `[...document.querySelectorAll("#summary tbody tr")].map(r => Number(r.cells[`+column+`].dataset.sort))`)
	}
	if v := values(); len(v) != 19 || !slices.IsSorted(v) {
		t.Errorf("sorted by hit rate: %v", v)
	}
	b.Mouse(b.Middle(`#summary th[aria-sort] button`), true)
	if v := values(); slices.IsSorted(v) || !slices.IsSortedFunc(v, func(a, b float64) int { return int(b*1e9) - int(a*1e9) }) {
		t.Errorf("sorted by hit rate, descending: %v", v)
	}

	// Both themes are legible: text 4.5:1, series 3:1 against the background.
	contrast := `(() => {
		const canvas = document.createElement("canvas").getContext("2d");
		const luminance = name => {
			canvas.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
			const [r, g, b] = [1, 3, 5].map(i => parseInt(canvas.fillStyle.slice(i, i + 2), 16) / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
			return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
		};
		const ratios = {}, back = luminance("--back");
		for (const name of ["--text", "--soft", "--link", "--bad", ...[0, 1, 2, 3, 4, 5, 6, 7].map(i => "--c" + i)]) {
			const l = luminance(name);
			ratios[name] = Math.max(l, back) / Math.min(l, back);
		}
		return ratios;
	})()`
	backs := map[string]bool{}
	for _, theme := range []string{"light", "dark"} {
		b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{still, {"name": "prefers-color-scheme", "value": theme}}}, nil)
		backs[browsertest.Eval[string](b, `getComputedStyle(document.body).backgroundColor`)] = true
		for name, ratio := range browsertest.Eval[map[string]float64](b, contrast) {
			if least := map[bool]float64{true: 3, false: 4.5}[strings.HasPrefix(name, "--c")]; ratio < least {
				t.Errorf("%s: %s has contrast %.2f, want %.1f", theme, name, ratio, least)
			}
		}
		b.Middle("#measured-miss-ratio")
		b.Screenshot(theme + ".png")
	}
	if len(backs) != 2 {
		t.Errorf("backgrounds %v: want one of each theme", backs)
	}

	// Narrow windows scroll tables and charts, not the page.
	for _, width := range []int{1400, 420} {
		b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
		if w := browsertest.Eval[int](b, `document.documentElement.scrollWidth`); w > width {
			t.Errorf("the page is %d wide in a window of %d", w, width)
		}
		b.Screenshot(fmt.Sprintf("width-%d.png", width))
	}

	// On paper everything is there, in the light theme.
	b.Call("Emulation.setEmulatedMedia", map[string]any{"media": "print", "features": []map[string]string{still, {"name": "prefers-color-scheme", "value": "dark"}}}, nil)
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1000, "height": 1400, "deviceScaleFactor": 1, "mobile": false}, nil)
	if back := browsertest.Eval[string](b, `getComputedStyle(document.body).backgroundColor`); back != "rgb(255, 255, 255)" {
		t.Errorf("printed on %s", back)
	}
	if n := browsertest.Eval[int](b, `[...document.querySelectorAll("figure.chart")].filter(f => f.getBoundingClientRect().width < 300).length`); n != 0 {
		t.Errorf("%d charts are too small on paper", n)
	}
	b.Middle("#measured-miss-ratio")
	b.Screenshot("print.png")

	for _, kind := range []string{"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"} {
		for _, e := range b.EventsOf(kind) {
			t.Errorf("%s: %s", kind, e)
		}
	}
	for _, e := range b.EventsOf("Network.requestWillBeSent") {
		var request struct{ Request struct{ URL string } }
		if err := json.Unmarshal([]byte(e), &request); err != nil {
			t.Fatal(err)
		}
		if u := request.Request.URL; u != address && !strings.HasPrefix(u, address+"#") && !strings.HasPrefix(u, "data:") {
			t.Errorf("the page asks for %s", u)
		}
	}
}
