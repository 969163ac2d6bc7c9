package memlimit

import (
	"fmt"
	"strings"
)

// Holder is a process that maps memory of an owner of a cache that has ended.
type Holder struct {
	PID   int
	Name  string
	Bytes int64
}

// Held says which processes hold memory of owners that have ended, for an error of a start that lacks memory; "" if none is visible. Processes that are
// attached keep the memory that they read until they have attached to the next owner, so a restart needs room for both.
func Held() string {
	holders, sum := held()
	if len(holders) == 0 {
		return ""
	}
	var names []string
	for _, h := range holders {
		names = append(names, fmt.Sprintf("%s (process %d) %s", h.Name, h.PID, size(float64(h.Bytes))))
	}
	return fmt.Sprintf("processes that were attached to an owner that has ended still hold %s of its memory, until they attach to the next: %s; end them first, or allow memory for both copies",
		size(float64(sum)), strings.Join(names, ", "))
}
