package cache_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDependencies_OfCache pins the modules that a program compiles if it imports only this package: no command line, no plots, no
// Prometheus, no exporters.
func TestDependencies_OfCache(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command here")
	}
	want := []string{
		"github.com/cespare/xxhash/v2", "github.com/dgraph-io/ristretto/v2", "github.com/dustin/go-humanize", "github.com/go-logr/logr", "github.com/go-logr/stdr",
		"github.com/hashicorp/golang-lru/arc/v2", "github.com/hashicorp/golang-lru/v2", "github.com/klauspost/compress", "github.com/klauspost/cpuid/v2", "github.com/pierrec/lz4/v4", "github.com/zeebo/xxh3", "go.opentelemetry.io/auto/sdk",
		"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/log", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace", "golang.org/x/sys",
	}
	for tags, more := range map[string][]string{"": nil, "cuda": {"github.com/google/uuid", "github.com/pkg/errors", "gorgonia.org/cu"}} {
		out, err := exec.Command("go", "list", "-tags", tags, "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", ".").Output()
		if err != nil {
			t.Fatal(err)
		}
		modules, want := strings.Fields(string(out)), slices.Sorted(slices.Values(slices.Concat(want, more)))
		slices.Sort(modules)
		if got := slices.Compact(modules); !slices.Equal(got, want) {
			t.Errorf("tags %q: package cache compiles packages of\n%s\nwant\n%s", tags, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestDependencies_OfModule: go.mod has no replace directive, because `go install …/cmd/cachebench@latest` refuses such modules, and no
// module that only tests need: those have modules of their own.
func TestDependencies_OfModule(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../go.mod")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("there are no sources here")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"replace ", "exclude ", "github.com/prometheus/prometheus ", "gonum.org/", "github.com/sbinet/"} {
		if strings.Contains(string(b), not) {
			t.Errorf("go.mod has %q", not)
		}
	}
}
