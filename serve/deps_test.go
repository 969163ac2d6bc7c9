package serve_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies_NoBench: the service and its tests import nothing that only measures.
func TestDependencies_NoBench(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command here")
	}
	for _, tags := range []string{"", "cuda"} {
		out, err := exec.Command("go", "list", "-tags", tags, "-test", "-deps", "./...").Output()
		if err != nil {
			t.Fatal(err)
		}
		for name := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(name, "github.com/tensorcache/tensorcache/bench/") {
				t.Errorf("tags %q: %s is imported", tags, name)
			}
		}
	}
}
