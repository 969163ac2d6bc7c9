package web

import (
	"encoding/json"
	"os/exec"
	"slices"
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
