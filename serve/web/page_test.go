package web

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// inPage runs page.js with stand-ins for the browser, and then code that sets result. It is skipped without node.
func inPage(t *testing.T, code string) (result []string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node to run the page's script")
	}
	source, err := page.ReadFile("page/page.js")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "-e", `
		const elements = {};
		const element = () => ({ tBodies: [{ replaceChildren() {}, insertRow: () => ({ insertCell: element }) }], addEventListener() {}, append() {} });
		const document = { getElementById: (id) => elements[id] ||= element(), createElement: element };
		const Node = class {}, sessionStorage = { getItem: () => null }, fetch = () => new Promise(() => {}), setInterval = () => {};
		let result;
		`+string(source)+"\n"+code+`
		console.log(JSON.stringify(result));`)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return result
}

func TestPage_Bytes(t *testing.T) {
	got := inPage(t, `result = [0, 17, 999, 1000, 1023, 1024, 1023 * 1024, 1048544, 1536 << 20, 2 ** 60].map(bytes);`)
	want := []string{"0 B", "17 B", "999 B", "0.977 KiB", "0.999 KiB", "1.00 KiB", "0.999 MiB", "1.00 MiB", "1.50 GiB", "1024 PiB"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPage_Estimate: an estimate that follows no row yet is not shown as one of 100 % hits.
func TestPage_Estimate(t *testing.T) {
	got := inPage(t, `
		const of = (keys) => ({ gpu_memory: 1 << 20, estimate: { accesses: 9, keys, budgets: [{ times: 1, hit_ratio: 0.5 }, { times: 2, hit_ratio: 0.75 }] } });
		result = [0, 3].map((keys) => { estimate(of(keys)); return elements.estimate.textContent; });`)
	want := []string{
		"No estimate yet: none of the rows that it follows has been looked up. --sample-keys sets how many it follows.",
		"Twice the budget would bring 25.0 points more hits (by LRU, from 9 accesses). Policies that follow frequency usually hit more.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPage_Devices: the budget of a device is rows, free slots and what is not allocated; resident tables count as taken of all budgets.
func TestPage_Devices(t *testing.T) {
	got := inPage(t, `
		const shown = {};
		rows = (id, all) => { shown[id] = all; };
		numbers = (all) => { shown.numbers = all; };
		charts = estimate = () => {};
		show({ gpu_memory: 8 << 20, payload_bytes: 1 << 20, metadata_bytes: 1 << 20, resident_bytes: 2 << 20, hit_ratio: 0, rows_cached: 0, rows: 0, host_bytes: 0, misses_by_reason: {},
			tables: [], errors: {}, devices: [{ name: "H200", index: 0, gpu_memory: 8 << 20, payload_bytes: 1 << 20, free_bytes: 1 << 10, unallocated_bytes: 3 << 20, lookups: 0 }] }, []);
		result = [shown.numbers[3].join(" "), ...shown.devices[0].map((c) => c.n || c)];`)
	want := []string{"4.00 MiB of 8.00 MiB budget", "H200 0", "8.00 MiB", "1.00 MiB", "1.00 KiB", "3.00 MiB", "0", "serves"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	html, err := page.ReadFile("page/index.html")
	if err != nil {
		t.Fatal(err)
	}
	_, head, _ := strings.Cut(string(html), `<table id="devices">`)
	if head, _, _ = strings.Cut(head, "</thead>"); strings.Count(head, "<th")-1 != len(want)-1 { // <thead> is no column
		t.Errorf("columns of devices: %s", head)
	}
}

// TestPage_Gaps: lines end where nothing was asked and where points are missing, instead of crossing that.
func TestPage_Gaps(t *testing.T) {
	got := inPage(t, `
		const of = (time, lookups) => ({ time, seconds: 5, lookups, hits: lookups / 2 });
		const points = [of(5, 10), of(10, 10), of(15, 0), of(20, 10), of(25, 10), of(60, 10)];
		result = [(p) => p.lookups > 0 ? p.hits : null, (p) => p.lookups].map((value) => runs(points, value).map((run) => run.map(([t, v]) => t + ":" + v).join(" ")).join(" | "));`)
	want := []string{"5:5 10:5 | 20:5 25:5 | 60:5", "5:10 10:10 15:0 20:10 25:10 | 60:10"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPage_Lately: reasons are those of the last five minutes, and numbers of axes are round.
func TestPage_Lately(t *testing.T) {
	got := inPage(t, `
		const sum = lately([{ time: 100, misses_by_reason: { cold: 7 } }, { time: 330, misses_by_reason: { cold: 2, evicted: 1 } }, { time: 640, misses_by_reason: { cold: 3 } }]);
		result = [sum.cold + " " + sum.evicted, [0.3, 1, 1.01, 3, 77, 4e6].map(above).join(" "), [0, 2e-6, 0.016384, 2].map(duration).join(", "), [5, 1234, 2.5e6].map(short).join(", "), [7, 200, 9e4, 9e5].map(since).join(", ")];`)
	want := []string{"3 undefined", "0.4 1 2 4 100 4000000", "0 s, 2 µs, 16.4 ms, 2 s", "5, 1.23 k, 2.5 M", "7 s, 3 min, 25 h, 10 d"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
