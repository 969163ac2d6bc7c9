package memlimit

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// sharedName is what the system calls the memory that owners share: see numa.AllocShared and its callers.
const sharedName = "/memfd:tensorcache "

// held returns the processes that map memory of owners that have ended, those of the most bytes first, and how much they hold together. An owner can write to
// what its clients can only read, so what some process maps and none maps writable has no owner any more.
func held() (holders []Holder, sum int64) {
	type memory struct {
		bytes int64
		owned bool
		by    map[int]bool
	}
	all := map[uint64]*memory{} // by inode
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			continue
		}
		maps, err := os.ReadFile(process + "/maps")
		if err != nil { // it has ended, or is of another user
			continue
		}
		for line := range bytes.Lines(maps) {
			f := strings.Fields(string(line)) // addresses, rights, offset, device, inode, name
			if !bytes.Contains(line, []byte(sharedName)) || len(f) < 6 {
				continue
			}
			inode, err := strconv.ParseUint(f[4], 10, 64)
			var from, to int64
			if _, bad := fmt.Sscanf(f[0], "%x-%x", &from, &to); err != nil || bad != nil {
				continue
			}
			m := all[inode]
			if m == nil {
				m = &memory{by: map[int]bool{}}
				all[inode] = m
			}
			m.owned = m.owned || strings.Contains(f[1], "w")
			m.by[pid] = true
			m.bytes = max(m.bytes, taken(process+"/map_files/"+f[0], to-from))
		}
	}
	by := map[int]int64{}
	for _, m := range all {
		if m.owned {
			continue
		}
		sum += m.bytes
		for pid := range m.by {
			by[pid] += m.bytes
		}
	}
	for pid, n := range by {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		holders = append(holders, Holder{pid, strings.TrimSpace(string(name)), n})
	}
	slices.SortFunc(holders, func(a, b Holder) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.PID, b.PID)) })
	return holders, sum
}

// taken returns the bytes that mapped memory takes, or its length if the system does not say.
func taken(path string, length int64) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return length
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return length
}
