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
		chart = estimate = () => {};
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
