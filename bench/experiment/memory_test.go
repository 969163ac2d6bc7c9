package experiment

import (
	"runtime"
	"strings"
	"testing"
)

// TestConfig_Memory: the estimate of a run of a million vertices is what such a run takes, 1.2 to 1.4 GB on a machine with two
// processors; settings that take most are named.
func TestConfig_Memory(t *testing.T) {
	c := NewConfig()
	c.Vertices, c.Device = 1_000_000, "host"
	needs, ok := c.memory(nil)
	sum := 0.0
	for _, n := range needs {
		sum += n.Bytes
	}
	if !ok || sum < 1.1e9 || sum > 1.6e9 || needs[0].Setting != "--vertices" {
		t.Errorf("%+v", needs)
	}
	if runtime.GOOS != "linux" {
		return
	}
	for setting, set := range map[string]func(*Config){
		"--vertices (2000000000) ":      func(c *Config) { c.Vertices = 2_000_000_000 },
		"--batches (1000000000000000) ": func(c *Config) { c.Batches = 1e15 },
	} {
		c := NewConfig()
		set(&c)
		if err := c.checkMemory(nil); err == nil || !strings.HasPrefix(err.Error(), setting) {
			t.Errorf("%s: %v", setting, err)
		}
		c.Force = true
		if err := c.checkMemory(nil); err != nil {
			t.Errorf("forced: %v", err)
		}
	}
	c.Features = "missing.npy"
	if _, ok := c.memory(nil); ok {
		t.Error("a missing file has an estimate")
	}
}

// TestConfig_MemoryOfText: the estimate of an n-gram run counts its table and its text.
func TestConfig_MemoryOfText(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no limit is known")
	}
	for setting, set := range map[string]func(*Config){
		"--rows (4000000000000) ":       func(c *Config) { c.Rows = 4e12 },
		"--text-tokens (400000000000) ": func(c *Config) { c.TextTokens = 4e11 },
		"--batch-size (16777216) ":      func(c *Config) { c.TextTokens, c.BatchSize, c.Layers = 1<<24, 1<<24, 1000 },
	} {
		c := NewConfig()
		c.Workload, c.Tokens = "ngram", "missing.npy"
		set(&c)
		if err := c.checkMemory(nil); err == nil || !strings.HasPrefix(err.Error(), setting) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}
