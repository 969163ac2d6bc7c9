package report

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// browser is a tab of headless Chromium, driven over the pipe of its DevTools protocol.
type browser struct {
	t       *testing.T
	to      *os.File
	session string
	calls   int
	answers chan message
	events  struct {
		sync.Mutex
		all []message
	}
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// deadline is the time of one step; a cold start on a busy machine is the longest.
const deadline = time.Minute

// newBrowser skips the test where there is no Chromium, unless TENSORCACHE_REQUIRE_BROWSER is set.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		if os.Getenv("TENSORCACHE_REQUIRE_BROWSER") != "" {
			t.Fatal("TENSORCACHE_REQUIRE_BROWSER is set, but there is no chromium")
		}
		t.Skip("no chromium on the PATH; TENSORCACHE_REQUIRE_BROWSER=1 makes that a failure")
	}
	theirIn, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--no-first-run", "--user-data-dir="+t.TempDir(), "--window-size=1400,900", "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, to: to, answers: make(chan message, 16)}
	go b.read(from)
	t.Cleanup(func() {
		b.send("Browser.close", nil) // rather than kill: its children end with it
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(deadline):
			cmd.Process.Kill()
			<-ended
		}
		to.Close()
		from.Close()
	})
	var tab struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &tab)
	b.call("Target.attachToTarget", map[string]any{"targetId": tab.TargetID, "flatten": true}, &tab)
	b.session = tab.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// read takes messages, which end in a zero byte.
func (b *browser) read(from *os.File) {
	defer close(b.answers)
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m) != nil {
			continue
		}
		if m.ID != 0 {
			b.answers <- m
			continue
		}
		b.events.Lock()
		b.events.all = append(b.events.all, m)
		b.events.Unlock()
	}
}

func (b *browser) send(method string, params any) {
	b.calls++
	call := map[string]any{"id": b.calls, "method": method}
	if params != nil {
		call["params"] = params
	}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		call["sessionId"] = b.session
	}
	text, err := json.Marshal(call)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	if err != nil {
		b.t.Errorf("%s: %v", method, err)
	}
}

func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.send(method, params)
	for timeout := time.After(deadline); ; {
		select {
		case m, ok := <-b.answers:
			switch {
			case !ok:
				b.t.Fatalf("%s: the browser ended", method)
			case m.ID != b.calls:
				continue
			case m.Error != nil:
				b.t.Fatalf("%s: %s", method, m.Error.Message)
			}
			if result != nil {
				if err := json.Unmarshal(m.Result, result); err != nil {
					b.t.Fatalf("%s: %v", method, err)
				}
			}
			return
		case <-timeout:
			b.t.Fatalf("%s: no answer", method)
		}
	}
}

// eventsOf returns the parameters of the events of that name so far.
func (b *browser) eventsOf(method string) (params []string) {
	b.events.Lock()
	defer b.events.Unlock()
	for _, m := range b.events.all {
		if m.Method == method {
			params = append(params, string(m.Params))
		}
	}
	return params
}

func (b *browser) open(address string) {
	b.t.Helper()
	before := len(b.eventsOf("Page.loadEventFired"))
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	for end := time.Now().Add(deadline); len(b.eventsOf("Page.loadEventFired")) == before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s does not load", address)
		}
	}
}

// eval returns the value of an expression in the page.
func eval[T any](b *browser, expression string) (value T) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	if len(r.Result.Value) > 0 {
		if err := json.Unmarshal(r.Result.Value, &value); err != nil {
			b.t.Fatalf("%s: %v", expression, err)
		}
	}
	return value
}

type point struct{ X, Y float64 }

// mouse moves to a point, and clicks there if it says so.
func (b *browser) mouse(p point, click bool) {
	b.t.Helper()
	types := []string{"mouseMoved"}
	if click {
		types = append(types, "mousePressed", "mouseReleased")
	}
	for _, kind := range types {
		event := map[string]any{"type": kind, "x": p.X, "y": p.Y}
		if kind != "mouseMoved" {
			event["button"], event["clickCount"] = "left", 1
		}
		b.call("Input.dispatchMouseEvent", event, nil)
	}
}

// press types keys of no text.
func (b *browser) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": k, "code": k}, nil)
		b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": k, "code": k}, nil)
	}
}

// middle brings an element into view and returns its middle.
func (b *browser) middle(selector string) point {
	b.t.Helper()
	return eval[point](b, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: "center", behavior: "instant"});
		const r = e.getBoundingClientRect();
		return {X: r.x + r.width / 2, Y: r.y + r.height / 2};
	})()`, selector))
}

// tip returns the text of the tooltip, "" if there is none.
func (b *browser) tip() string {
	b.t.Helper()
	return eval[string](b, `(() => { const t = document.getElementById("tip"); return t.hidden ? "" : t.innerText; })()`)
}

// screenshot keeps a picture where TENSORCACHE_SCREENSHOTS names a folder, for people to look at.
func (b *browser) screenshot(name string) {
	dir := os.Getenv("TENSORCACHE_SCREENSHOTS")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), picture, 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// TestHTML_InBrowser: the page of every kind of result, harmful names among them, works.
func TestHTML_InBrowser(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	dir := exampleFolder(t)
	text := page(t, dir, HTMLOptions{Title: hostile, Date: hostile})
	file := filepath.Join(dir, "report.html")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	address := (&url.URL{Scheme: "file", Path: file}).String()
	still := map[string]string{"name": "prefers-reduced-motion", "value": "reduce"} // a page that still scrolls would be missed
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{still}}, nil)
	b.open(address)

	// Nothing that a name says is done.
	if eval[bool](b, `"harmed" in window`) {
		t.Error("a script from the results ran")
	}
	if n := eval[int](b, `document.querySelectorAll("img, iframe, object, embed, script[src], link:not([rel=icon])").length`); n != 0 {
		t.Errorf("%d elements of foreign content", n)
	}
	if title := eval[string](b, `document.title`); title != strings.TrimSuffix(hostile, "\x01") { // titles drop spaces and controls at their ends
		t.Errorf("title %q", title)
	}

	// Links.
	for _, href := range eval[[]string](b, `[...document.querySelectorAll("a[href]")].map(a => a.getAttribute("href"))`) {
		if id, ok := strings.CutPrefix(href, "#"); ok {
			if !eval[bool](b, fmt.Sprintf(`document.getElementById(%q) !== null`, id)) {
				t.Errorf("link %s leads nowhere", href)
			}
			continue
		}
		t.Errorf("link %s leaves the page", href)
	}
	b.mouse(b.middle(`nav a[href="#codecs"]`), true)
	if y := eval[float64](b, `document.getElementById("codecs").getBoundingClientRect().top`); y < 0 || y > 400 {
		t.Errorf("a click on “Codecs” brings it to %v of the window", y)
	}

	// Every chart has a tooltip under the pointer, which says what the table says.
	ids := eval[[]string](b, `[...document.querySelectorAll("figure.chart")].map(f => f.id)`)
	if len(ids) < 6 {
		t.Errorf("charts %v: want at least 6", ids)
	}
	for _, id := range ids {
		b.mouse(b.middle("#"+id+" .drawing svg"), false)
		lines := strings.Split(b.tip(), "\n")
		rows := eval[[][]string](b, fmt.Sprintf(`(() => {
			const f = document.getElementById(%q), axis = f.querySelector("thead th").textContent + " ";
			const rows = [...f.querySelectorAll("tbody tr")].filter(r => axis + r.cells[0].textContent === %q);
			return rows.map(row => [...row.cells].map(c => c.textContent).slice(1).filter(c => c));
		})()`, id, lines[0]))
		if !slices.ContainsFunc(rows, func(row []string) bool { // neighbours may be equal but for rounding
			return len(row) > 0 && !slices.ContainsFunc(row, func(value string) bool { return !slices.Contains(lines, value) })
		}) {
			t.Errorf("%s: tooltip %q is not a row of the table: %q", id, lines, rows)
		}
		if eval[int](b, fmt.Sprintf(`document.querySelectorAll("#" + %q + " .cursor *").length`, id)) == 0 {
			t.Errorf("%s: no cursor", id)
		}
		if id == "miss-ratio-curve-1" || id == "measured-miss-ratio" {
			b.screenshot(id + "-tooltip.png")
		}
	}
	b.mouse(point{5, 5}, false)
	if tip := b.tip(); tip != "" {
		t.Errorf("tooltip %q stays", tip)
	}

	// Keys: from the first to the last row and away.
	for id, axis := range map[string]string{"miss-ratio-curve-1": "size of the cache ", "measured-miss-ratio": "budget of the cache "} {
		b.middle("#" + id)
		eval[any](b, fmt.Sprintf(`document.querySelector("#%s .drawing svg").focus({preventScroll: true})`, id))
		name := func(row int) string {
			return axis + eval[string](b, fmt.Sprintf(`[...document.querySelectorAll("#%s tbody tr")].at(%d).cells[0].textContent`, id, row))
		}
		for _, step := range []struct {
			key string
			row int
		}{{"ArrowRight", 0}, {"ArrowDown", 1}, {"ArrowLeft", 0}, {"ArrowUp", 0}, {"End", -1}, {"ArrowRight", -1}, {"Home", 0}} {
			b.press(step.key)
			if tip, want := b.tip(), name(step.row); !strings.HasPrefix(tip, want+"\n") {
				t.Errorf("%s: %s shows %q, want %q", id, step.key, tip, want)
			}
		}
		b.press("Escape")
		if tip := b.tip(); tip != "" {
			t.Errorf("%s: Escape leaves %q", id, tip)
		}
	}

	// A series can be hidden, from the tooltip too, and shown again.
	const button, line = "#miss-ratio-curve-1 .legend li:first-child button", `#miss-ratio-curve-1 .drawing [data-i="0"]`
	name := eval[string](b, fmt.Sprintf(`document.querySelector(%q).textContent`, button))
	for _, hidden := range []bool{true, false} {
		b.mouse(b.middle(button), true)
		display := eval[string](b, fmt.Sprintf(`getComputedStyle(document.querySelector(%q)).display`, line))
		b.mouse(b.middle("#miss-ratio-curve-1 .drawing svg"), false)
		if tip := b.tip(); (display == "none") != hidden || slices.Contains(strings.Split(tip, "\n"), name) == hidden {
			t.Errorf("hidden %v: display %q, tooltip %q", hidden, display, tip)
		}
	}

	// A chart is saved as a PNG picture, as it is shown.
	eval[any](b, `HTMLAnchorElement.prototype.click = function () { window.saved = [this.download, this.href]; }`)
	for _, id := range []string{"miss-ratio-curve-1", "measured-miss-ratio"} {
		b.mouse(b.middle("#"+id+" button.png"), true)
		saved := eval[[]string](b, `new Promise(done => { const wait = () => window.saved ? done(window.saved) : setTimeout(wait, 10); wait(); })`)
		eval[any](b, `delete window.saved`)
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
	b.mouse(b.middle(`#summary th:nth-child(`+fmt.Sprint(eval[int](b, column)+1)+`) button`), true)
	values := func() []float64 {
		return eval[[]float64](b, `[...document.querySelectorAll("#summary tbody tr")].map(r => Number(r.cells[`+column+`].dataset.sort))`)
	}
	if v := values(); len(v) != 19 || !slices.IsSorted(v) {
		t.Errorf("sorted by hit rate: %v", v)
	}
	b.mouse(b.middle(`#summary th[aria-sort] button`), true)
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
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{still, {"name": "prefers-color-scheme", "value": theme}}}, nil)
		backs[eval[string](b, `getComputedStyle(document.body).backgroundColor`)] = true
		for name, ratio := range eval[map[string]float64](b, contrast) {
			if least := map[bool]float64{true: 3, false: 4.5}[strings.HasPrefix(name, "--c")]; ratio < least {
				t.Errorf("%s: %s has contrast %.2f, want %.1f", theme, name, ratio, least)
			}
		}
		b.middle("#measured-miss-ratio")
		b.screenshot(theme + ".png")
	}
	if len(backs) != 2 {
		t.Errorf("backgrounds %v: want one of each theme", backs)
	}

	// Narrow windows scroll tables and charts, not the page.
	for _, width := range []int{1400, 420} {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
		if w := eval[int](b, `document.documentElement.scrollWidth`); w > width {
			t.Errorf("the page is %d wide in a window of %d", w, width)
		}
		b.screenshot(fmt.Sprintf("width-%d.png", width))
	}

	// On paper everything is there, in the light theme.
	b.call("Emulation.setEmulatedMedia", map[string]any{"media": "print", "features": []map[string]string{still, {"name": "prefers-color-scheme", "value": "dark"}}}, nil)
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1000, "height": 1400, "deviceScaleFactor": 1, "mobile": false}, nil)
	if back := eval[string](b, `getComputedStyle(document.body).backgroundColor`); back != "rgb(255, 255, 255)" {
		t.Errorf("printed on %s", back)
	}
	if n := eval[int](b, `[...document.querySelectorAll("figure.chart")].filter(f => f.getBoundingClientRect().width < 300).length`); n != 0 {
		t.Errorf("%d charts are too small on paper", n)
	}
	b.middle("#measured-miss-ratio")
	b.screenshot("print.png")

	for _, kind := range []string{"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"} {
		for _, e := range b.eventsOf(kind) {
			t.Errorf("%s: %s", kind, e)
		}
	}
	for _, e := range b.eventsOf("Network.requestWillBeSent") {
		var request struct{ Request struct{ URL string } }
		if err := json.Unmarshal([]byte(e), &request); err != nil {
			t.Fatal(err)
		}
		if u := request.Request.URL; u != address && !strings.HasPrefix(u, address+"#") && !strings.HasPrefix(u, "data:") {
			t.Errorf("the page asks for %s", u)
		}
	}
}
