package learn

import "sync"

// sampled are sampled accesses to one table: hits that count Options.HitWeight times, and others that count once.
type sampled struct{ rows, hits []int64 }

// pending holds samples that were read from the rings and that the policy has not observed, at most pendingRings times as many as a ring has
// records. Rings are read while the policy ranks, which for tens of millions of rows takes longer than the rings fill.
type pending struct {
	sync.Mutex
	tables  []sampled
	n, most int
}

const pendingRings = 4

// begin locks the samples, given the number of tables and of records in a ring. Between begin and end, add may be called.
func (p *pending) begin(tables, ring int) *pending {
	p.Lock()
	if len(p.tables) != tables {
		p.tables = make([]sampled, tables)
	}
	p.most = pendingRings * ring
	return p
}

func (p *pending) end() { p.Unlock() }

// add adds an access. It returns false, and drops it, if too many are pending.
func (p *pending) add(table int, row int64, hit bool) bool {
	if p.n >= p.most {
		return false
	}
	p.n++
	of := &p.tables[table]
	if hit {
		of.hits = append(of.hits, row)
	} else {
		of.rows = append(of.rows, row)
	}
	return true
}

// swap returns the samples, in the order in which they were added, and goes on with the memory of others, which nobody reads any more.
func (p *pending) swap(empty []sampled) []sampled {
	for i := range empty {
		empty[i] = sampled{empty[i].rows[:0], empty[i].hits[:0]}
	}
	p.Lock()
	defer p.Unlock()
	p.tables, p.n, empty = empty, 0, p.tables
	return empty
}
