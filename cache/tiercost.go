package cache

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/internal/lookups"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Tables of pages differ from others in what a miss costs: a row that is not in the host tier either is read from its page, which takes a thousand times as long. A
// row of such a table in a slab leaves its place in the host tier to another row (unless HostOptions.Inclusive), so device memory saves reads of pages. Between
// tables, admission and the division of host memory therefore weigh each table's misses by what they take in the mean.

// absentRow is HostOptions.ColdRow, or as measured.
func (p inPages) absentRow(ctx context.Context, c *Cache, t *Table) float64 {
	if fixed := c.opts.Host.ColdRow; fixed > 0 {
		return fixed.Seconds()
	}
	ctx, cancel := context.WithTimeout(ctx, min(c.opts.Host.ColdTimeout, measuredTime))
	defer cancel()
	rows := make([]int64, min(measuredRows, t.Rows()))
	r := rand.New(rand.NewPCG(c.opts.Seed, 0x636f6c64))
	for i := range rows {
		rows[i] = r.Int64N(int64(t.Rows()))
	}
	slices.Sort(rows)
	begun := time.Now()
	if s := p.table.ReadRows(ctx, rows, func(int, []byte, bool, error) {}); len(rows) == 0 || s.Failed > 0 {
		return unknownColdRow.Seconds()
	}
	return time.Since(begun).Seconds() / float64(len(rows))
}

// What an absent row takes is measured by one read of measuredRows rows, which may take measuredTime.
const (
	measuredRows   = 256
	measuredTime   = 5 * time.Second
	unknownColdRow = 20 * time.Microsecond
)

// coldCost returns what rows that lie below the host tier add to a miss of a table, in the mean, in seconds. slabs is the table's share of the slabs, in bytes.
func (c *Cache) coldCost(t *read.Table, d *lookups.Demand, slabs, coldRow float64) float64 {
	if c.opts.Host.Inclusive || coldRow == 0 {
		return 0
	}
	main, _ := t.Tier.MainBytes()
	total := t.Tier.Totals()
	if main >= total.SlotBytes {
		return 0
	}
	slot := float64(max(1, total.SlotBytes)) / float64(max(1, total.Rows))
	return coldRow * d.Absent(slabs/slot, float64(main+t.Tier.RingBytes())/slot)
}

// hostPart is the host memory that a table of pages gets.
type hostPart struct {
	name        string
	least, most int64 // bytes with which the tier has three rows, and all
	raw         float64
	slot        float64 // bytes of a row in the tier
	slabs       float64 // rows that lie in slabs
	weight      float64 // seconds that absent rows take together if all are absent
	d           *lookups.Demand
	bytes       int64
}

// saved returns the time that rows in the tier save if it has this number of bytes.
func (p *hostPart) saved(bytes int64) float64 {
	return p.weight * (p.d.Found(p.slabs+float64(bytes-p.least)/p.slot) - p.d.Found(p.slabs))
}

func (p inPages) hostBytes(t *Table) (bytes int64, what string, part *hostPart) {
	part = &hostPart{name: t.name, least: p.finding + transfer.LeastPart(int64(t.Rows()), t.RowBytes()), raw: tableBytes(t), slot: float64(slab.SlotBytes(p.mean))}
	part.most = part.least + int64(float64(t.Rows())*part.slot*hostSpare)
	return 0, "", part
}

// divideHost divides host memory among tables of pages: by the time that it saves if training says something of all of them, otherwise by their raw bytes.
// Each gets what it needs at least, and a quarter of its share by raw bytes. REQUIRES: memory is at least the sum of what they need.
func divideHost(memory int64, parts []*hostPart) {
	raw, left := 0.0, memory
	known := len(parts) > 1
	for _, p := range parts {
		raw += p.raw
		known = known && p.d.Drawn != nil && p.weight > 0
	}
	sure := 1.0
	if known {
		sure = surePart
	}
	for _, p := range parts {
		p.bytes = p.least
		left -= p.least
	}
	rest := left
	for _, p := range parts {
		more := int64(float64(rest) * p.raw / raw * sure)
		p.bytes += more
		left -= more
	}
	if step := left / divideSteps; known && step > 0 {
		left -= step * divideByTime(step, divideSteps, parts)
	}
	parts[len(parts)-1].bytes += left
}

// divideByTime gives the parts n further steps of step bytes in all, and returns how many it gave: fewer if all rows of all tables have room. What a part saves
// grows in leaps, as it is known from a sample. So it is judged by the largest saving per step over any number of further steps, and gets as many steps.
func divideByTime(step int64, n int, parts []*hostPart) (given int64) {
	saved := make([][]float64, len(parts))
	for i, p := range parts {
		for k := range n + 1 {
			saved[i] = append(saved[i], p.saved(min(p.most, p.bytes+int64(k)*step)))
		}
	}
	at := make([]int, len(parts))
	for left := n; left > 0; {
		best, steps, most := -1, 0, 0.0
		for i, p := range parts {
			for k := 1; k <= left && p.bytes+int64(k-1)*step < p.most; k++ {
				if gain := (saved[i][at[i]+k] - saved[i][at[i]]) / float64(k); best < 0 || gain > most {
					best, steps, most = i, k, gain
				}
			}
		}
		if best < 0 {
			break
		}
		parts[best].bytes += int64(steps) * step
		at[best] += steps
		left -= steps
		given += int64(steps)
	}
	return given
}

const (
	surePart    = 0.25
	divideSteps = 256
)

// memoryOf returns the most host memory of each table's tier: of Options.Host.Memory, what the tables that are not of pages leave is divided among
// those that are.
func (c *Cache) memoryOf(tables []Table, k tierCosts) ([]int64, error) {
	all := make([]int64, len(tables))
	limit := c.opts.Host.Memory
	if limit == 0 {
		limit = maxBudget
	}
	var parts []*hostPart
	of := map[int]*hostPart{}
	least := int64(0)
	var largest *hostPart
	for i := range tables {
		bytes, what, p := tables[i].kind.hostBytes(&tables[i])
		if p == nil {
			if c.opts.Host.Memory > 0 {
				limit -= bytes
			}
			if limit < 0 {
				return nil, fmt.Errorf("cache: host memory (%d B) must hold all rows of tables that are not of pages, as %s", c.opts.Host.Memory, what)
			}
			continue
		}
		p.d = k.demands[i]()
		p.weight = p.d.Lookups * k.cold[i]
		if !c.opts.Host.Inclusive {
			p.slabs = k.slabs[i] / p.slot
		}
		parts, of[i] = append(parts, p), p
		if least += p.least; largest == nil || p.least > largest.least {
			largest = p
		}
	}
	if len(parts) == 0 {
		return all, nil
	}
	if least > limit {
		return nil, fmt.Errorf("cache: host memory (%d B) must be at least %d B: the indexes of the %d rows of table %s, and three rows",
			c.opts.Host.Memory, least+c.opts.Host.Memory-limit, int64(largest.d.Rows), largest.name)
	}
	divideHost(limit, parts)
	for i, p := range of {
		all[i] = p.bytes
	}
	return all, nil
}

// policyMemory is the most host memory that the policy may take, 0 for any: a part of Options.Host.Memory, if tables of pages are to share that. Otherwise the
// policy of a table of short rows would take many times the memory of the rows that it ranks.
func (c *Cache) policyMemory() int64 {
	if !slices.ContainsFunc(c.set.Tables, func(t *read.Table) bool { return t.Tier.Partial() }) {
		return 0
	}
	return c.opts.Host.Memory / policyShare
}

const policyShare = 8

// hostSpare is how much longer than all rows a tier's memory is taken to be, for the ring and for holes.
const hostSpare = 1.2

// tierCosts says what rows below the host tiers cost.
type tierCosts struct {
	demands     []func() *lookups.Demand // of each table, found out by the first call
	cold, slabs []float64                // of each table: seconds of an absent row, 0 for tables that have none; bytes of slots in slabs
}

// newTierCosts finds out what rows below the host tiers cost, where that decides anything: between tables, or between copies on several devices.
func (c *Cache) newTierCosts(ctx context.Context, tables []Table, batches []lookups.Batch, budget, raw float64) tierCosts {
	k := tierCosts{cold: make([]float64, len(tables))}
	weighs := c.weighsTiers(tables)
	for i := range tables {
		t := &tables[i]
		k.demands = append(k.demands, sync.OnceValue(func() *lookups.Demand {
			return lookups.DemandOf(batches, i, int64(t.Rows()), t.RowBytes(), c.opts.Seed)
		}))
		k.slabs = append(k.slabs, budget*tableBytes(t)/raw)
		if !weighs {
			continue
		}
		if k.cold[i] = t.kind.absentRow(ctx, c, t); k.cold[i] > 0 {
			c.watch.Log.Debug("rows below host memory", slog.String("table", t.name), slog.Duration("row", time.Duration(k.cold[i]*1e9)))
		}
	}
	return k
}

// weighsTiers says whether the costs of tiers decide anything.
func (c *Cache) weighsTiers(tables []Table) bool {
	return (len(tables) > 1 || len(c.set.Devices) > 1) && slices.ContainsFunc(tables, func(t Table) bool { _, paged := t.kind.(inPages); return paged })
}
