package memlimit

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

func files(text map[string]string) fstest.MapFS {
	system := fstest.MapFS{}
	for name, content := range text {
		system[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return system
}

// TestGroups: a group's limit less its use, but for cached files; parents count, "max" does not.
func TestGroups(t *testing.T) {
	const v2, v1 = "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
	for name, c := range map[string]struct {
		files map[string]string
		want  []int64
	}{
		"v2": {map[string]string{
			"proc/self/cgroup":        "0::/a/b\n",
			v2 + "a/b/memory.max":     "max\n",
			v2 + "a/b/memory.current": "100\n",
			v2 + "a/memory.max":       "5000\n",
			v2 + "a/memory.current":   "1000\n",
			v2 + "a/memory.stat":      "anon 700\nactive_file 200\ninactive_file 100\n",
		}, []int64{4300}},
		"v2, both": {map[string]string{
			"proc/self/cgroup":      "0::/a\n",
			v2 + "a/memory.max":     "5000",
			v2 + "a/memory.current": "1000",
			v2 + "memory.max":       "1500",
			v2 + "memory.current":   "1600",
		}, []int64{4000, -100}},
		"v1": {map[string]string{
			"proc/self/cgroup":                "5:cpu,cpuacct:/x\n4:memory:/x\n0::/\n",
			v1 + "x/memory.limit_in_bytes":    "9000\n",
			v1 + "x/memory.usage_in_bytes":    "4000\n",
			v1 + "x/memory.stat":              "active_file 1\ntotal_active_file 10\ntotal_inactive_file 5\n",
			v1 + "memory.limit_in_bytes":      "9223372036854771712\n",
			v1 + "memory.usage_in_bytes":      "4000\n",
			"sys/fs/cgroup/cpu/cpu.shares":    "1",
			"sys/fs/cgroup/x/memory.max.fake": "1",
		}, []int64{5015}},
		"path of another namespace": {map[string]string{
			"proc/self/cgroup":            "4:memory:/docker/0123\n",
			v1 + "memory.limit_in_bytes":  "900",
			v1 + "memory.usage_in_bytes":  "400",
			v2 + "elsewhere/memory.max":   "1",
			v2 + "elsewhere/memory.bytes": "1",
		}, []int64{500}},
		"none": {map[string]string{}, nil},
	} {
		var got []int64
		for _, l := range groups(files(c.files)) {
			got = append(got, l.Bytes)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestAvailable(t *testing.T) {
	got := available(files(map[string]string{"proc/meminfo": "MemTotal:       100 kB\nMemAvailable:       40 kB\n"}))
	if len(got) != 1 || got[0].Bytes != 40<<10 {
		t.Errorf("%v", got)
	}
}

// TestResources_AddressSpace lowers the limit of this process for a moment.
func TestResources_AddressSpace(t *testing.T) {
	status := files(map[string]string{"proc/self/status": "VmSize:\t 1000 kB\nVmData:\t 10 kB\n"})
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &before); err != nil {
		t.Fatal(err)
	}
	const limit = 1 << 45
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: before.Max}); err != nil {
		t.Skipf("the limit cannot be set: %v", err)
	}
	defer unix.Setrlimit(unix.RLIMIT_AS, &before)
	got := resources(status)
	if !slices.Contains(got, Limit{limit - 1000<<10, "RLIMIT_AS"}) {
		t.Errorf("%v", got)
	}
}

// TestCheck: the error names the largest need, the sum and the limit.
func TestCheck(t *testing.T) {
	if err := Check(Need{"--rows", 1, 1000}); err != nil {
		t.Error(err)
	}
	err := Check(Need{"--rows", 1 << 50, 5e15}, Need{"--batches", 7, 2e15}, Need{"--graph", "x", 1})
	if err == nil || !strings.HasPrefix(err.Error(), "--rows (1125899906842624) needs about 5.0 PB of memory (7.0 PB with the rest), and this process may take ") ||
		!strings.HasSuffix(err.Error(), "): lower it, or go on with --force") {
		t.Error(err)
	}
}
