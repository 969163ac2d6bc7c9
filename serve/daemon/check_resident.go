package daemon

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// ofBudget marks memory that is a part of the budget.
const ofBudget = "budget"

// planResident adds the memory of resident tables. What lies on devices is a part of the budget. Slots of a length that is chosen when the rows are
// known are planned as long as the rows: at most so much.
func (c *Config) planResident(p *Plan, hostKind, deviceKind string) error {
	tables := 0
	for _, spec := range c.Tables {
		if spec.Resident {
			tables++
		}
	}
	taken := int64(0) // of the first device, as far as slots have given lengths
	for i, spec := range c.Tables {
		if !spec.Resident {
			continue
		}
		of, most := &p.Tables[i], buddy.MaxTarget(p.Tables[i].RowBytes)
		given := min(spec.Slots.Target, most)
		l, err := buddy.NewLayout(max(given, buddy.MinTarget), of.RowBytes, of.Capacity, p.Devices)
		if err != nil {
			return fmt.Errorf("table %s: %w", of.Name, err)
		}
		var slots, words, overflow int64
		for d := range p.Devices {
			slots += l.LocalRows(d) * int64(max(given, min(spec.Slots.MaxTarget, most)))
			words, overflow = words+l.WordsBytes(d), overflow+l.BuddyBytes(d)
		}
		of.Resident = fmt.Sprintf("slots of %d B", given)
		if given == 0 {
			of.Resident, slots, overflow = "slots as the rows need", of.Capacity*int64(most), of.Capacity*int64(l.Over())
		}
		add := func(kind, what string, bytes int64, of string) {
			if bytes > 0 {
				p.Memory = append(p.Memory, PlannedMemory{kind, what, bytes, given == 0, of})
			}
		}
		add(deviceKind, "slots of resident table "+of.Name, slots, ofBudget)
		p.Memory = append(p.Memory, PlannedMemory{deviceKind, "words of resident table " + of.Name, words, false, ofBudget})
		what := "what is longer than the slots of table " + of.Name
		if b := spec.Slots.Buddy; b == cache.BuddyPeer || b == cache.BuddyAuto && p.Devices > 1 && tables == len(c.Tables) {
			add(deviceKind, what, overflow, ofBudget)
		} else {
			add(hostKind, what, overflow, "")
		}
		if b := spec.Slots.Buddy; b == cache.BuddyPeer && p.Devices == 1 {
			p.Problems = append(p.Problems, fmt.Sprintf("table %s: buddy=peer needs at least 2 devices", of.Name))
		}
		taken += l.LocalRows(0)*int64(max(given, min(spec.Slots.MaxTarget, most))) + l.WordsBytes(0)
	}
	if least := slices.Min(p.Budgets); taken > least {
		p.Problems = append(p.Problems, fmt.Sprintf("resident tables need %s of each device for slots and words: --gpu-memory (%s) must be at least that, or their slots shorter",
			humanize.IBytes(uint64(taken)), humanize.IBytes(uint64(least))))
	}
	return nil
}
