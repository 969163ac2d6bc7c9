package redistest

import (
	"fmt"
	"net"
	"strings"
)

// BeginMove says to two masters that a slot is on its way from one to the other. Keys stay where they are until EndMove.
func (c *Cluster) BeginMove(slot int, from, to *Node) {
	c.t.Helper()
	c.ask(to, "CLUSTER SETSLOT %d IMPORTING %s", slot, from.ID)
	c.ask(from, "CLUSTER SETSLOT %d MIGRATING %s", slot, to.ID)
}

// MoveKeys moves the keys that a slot has, at most so many of them, and returns how many there were.
func (c *Cluster) MoveKeys(slot, most int, from, to *Node) int {
	c.t.Helper()
	names := strings.Fields(c.ask(from, "CLUSTER GETKEYSINSLOT %d %d", slot, most))
	host, port, _ := net.SplitHostPort(to.Addr)
	for _, name := range names {
		c.ask(from, "MIGRATE %s %s %s 0 5000", host, port, name) // NOKEY if it has run out meanwhile
	}
	return len(names)
}

// EndMove moves the keys that are left, and then the slot.
func (c *Cluster) EndMove(slot int, from, to *Node) {
	c.t.Helper()
	for c.MoveKeys(slot, 100, from, to) > 0 {
	}
	for _, n := range append([]*Node{to, from}, c.Nodes...) { // first the one that is to have the slot
		if role := c.ask(n, "ROLE"); strings.HasPrefix(role, "master") {
			c.ask(n, "CLUSTER SETSLOT %d NODE %s", slot, to.ID)
		}
	}
}

func (c *Cluster) ask(n *Node, format string, args ...any) string {
	c.t.Helper()
	command := fmt.Sprintf(format, args...)
	answer, err := n.Ask(command)
	if err != nil {
		c.t.Fatalf("redistest: node %s: %s: %v", n.Addr, command, err)
	}
	return answer
}
