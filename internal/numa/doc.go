// Package numa knows the memory nodes of this machine: which there are, which one a PCI device is attached to, how to lay memory on some
// of them, how to keep a thread to the processors of one, and how much memory is
// left. Linux only; elsewhere, and in containers and virtual machines that hide
// it, the topology is not known and memory cannot be laid. There is no libnuma here: files and four system calls.
//
// Terms: a *node* is some memory and the processors near it, by Linux's number, from 0, with gaps. It may have no memory, or no
// processors. What lies on a node is whole pages.
//
// Safe for concurrent use, but for a Memory and its Free.
package numa

import (
	"fmt"
	"strings"
)

// Unknown stands for the node of a device where the system does not say.
const Unknown = -1

// List returns nodes as people write them, such as "0, 2".
func List(nodes []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(nodes), " ", ", "), "[]")
}
