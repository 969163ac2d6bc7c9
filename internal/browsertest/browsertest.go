// Package browsertest drives headless Chromium in tests of pages. A Browser is for one goroutine.
package browsertest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Browser is a tab of headless Chromium, driven over the pipe of its DevTools protocol.
type Browser struct {
	t       testing.TB
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

// New skips the test where there is no Chromium, unless TENSORCACHE_REQUIRE_BROWSER is set.
func New(t *testing.T) *Browser {
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
	b := &Browser{t: t, to: to, answers: make(chan message, 16)}
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
	b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &tab)
	b.Call("Target.attachToTarget", map[string]any{"targetId": tab.TargetID, "flatten": true}, &tab)
	b.session = tab.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.Call(domain+".enable", nil, nil)
	}
	return b
}

// read takes messages, which end in a zero byte.
func (b *Browser) read(from *os.File) {
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

func (b *Browser) send(method string, params any) {
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

// Call calls a method of the DevTools protocol. It stores the answer in result, unless that is nil.
func (b *Browser) Call(method string, params, result any) {
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

// EventsOf returns the parameters of the events of that name so far.
func (b *Browser) EventsOf(method string) (params []string) {
	b.events.Lock()
	defer b.events.Unlock()
	for _, m := range b.events.all {
		if m.Method == method {
			params = append(params, string(m.Params))
		}
	}
	return params
}

// Open loads a page.
func (b *Browser) Open(address string) {
	b.t.Helper()
	before := len(b.EventsOf("Page.loadEventFired"))
	b.Call("Page.navigate", map[string]any{"url": address}, nil)
	for end := time.Now().Add(deadline); len(b.EventsOf("Page.loadEventFired")) == before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s does not load", address)
		}
	}
}

// Eval returns the value of an expression in the page.
func Eval[T any](b *Browser, expression string) (value T) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
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

// Point is a place of the window, in CSS pixels.
type Point struct{ X, Y float64 }

// Mouse moves to a point, and clicks there if it says so.
func (b *Browser) Mouse(p Point, click bool) {
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
		b.Call("Input.dispatchMouseEvent", event, nil)
	}
}

// Press types keys of no text.
func (b *Browser) Press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": k, "code": k}, nil)
		b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": k, "code": k}, nil)
	}
}

// Middle brings an element into view and returns its middle.
func (b *Browser) Middle(selector string) Point {
	b.t.Helper()
	return Eval[Point](b, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: "center", behavior: "instant"});
		const r = e.getBoundingClientRect();
		return {X: r.x + r.width / 2, Y: r.y + r.height / 2};
	})()`, selector))
}

// Screenshot keeps a picture where TENSORCACHE_SCREENSHOTS names a folder, for people to look at.
func (b *Browser) Screenshot(name string) {
	dir := os.Getenv("TENSORCACHE_SCREENSHOTS")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	b.Call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), picture, 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}
