package memlimit

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func limits() []Limit {
	system := os.DirFS("/")
	return append(append(groups(system), resources(system)...), available(system)...)
}

// groups returns what the control groups of the process and those above them leave. Cached pages of files count as free: the
// system takes them back.
func groups(system fs.FS) (all []Limit) {
	file, err := fs.ReadFile(system, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(file)) {
		// ID:controllers:path; v2 has no controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		root, limit, usage, cached := "sys/fs/cgroup", "memory.max", "memory.current", []string{"active_file", "inactive_file"}
		if fields[1] == "memory" {
			root, limit, usage, cached = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", []string{"total_active_file", "total_inactive_file"}
		} else if fields[1] != "" {
			continue
		}
		// In a container the path may be that outside of it: then only the root is found.
		for dir := path.Join("/", fields[2]); ; dir = path.Dir(dir) {
			at := path.Join(root, dir)
			most, ok := number(system, path.Join(at, limit))
			used, known := number(system, path.Join(at, usage))
			if ok && known && most < math.MaxInt64/2 { // v1 says "none" by a number near the largest
				stat := pairs(system, path.Join(at, "memory.stat"))
				all = append(all, Limit{most - used + stat[cached[0]] + stat[cached[1]], "cgroup memory limit"})
			}
			if dir == "/" {
				break
			}
		}
	}
	return all
}

// resources returns what RLIMIT_AS and RLIMIT_DATA leave.
func resources(system fs.FS) (all []Limit) {
	status := pairs(system, "proc/self/status")
	for _, r := range []struct {
		which      int
		name, used string
	}{{unix.RLIMIT_AS, "RLIMIT_AS", "VmSize:"}, {unix.RLIMIT_DATA, "RLIMIT_DATA", "VmData:"}} {
		var l unix.Rlimit
		used, known := status[r.used]
		if unix.Getrlimit(r.which, &l) == nil && known && l.Cur < math.MaxInt64 {
			all = append(all, Limit{int64(l.Cur) - used<<10, r.name})
		}
	}
	return all
}

// available returns what the system can give without swapping.
func available(system fs.FS) []Limit {
	if kib, ok := pairs(system, "proc/meminfo")["MemAvailable:"]; ok {
		return []Limit{{kib << 10, "memory available"}}
	}
	return nil
}

// number reads a file that holds one number.
func number(system fs.FS, name string) (int64, bool) {
	b, err := fs.ReadFile(system, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil // "max" is no limit
}

// table reads a file of lines that begin with a name and a number.
func pairs(system fs.FS, name string) map[string]int64 {
	values := map[string]int64{}
	b, err := fs.ReadFile(system, name)
	if err != nil {
		return values
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 1 {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				values[f[0]] = n
			}
		}
	}
	return values
}
