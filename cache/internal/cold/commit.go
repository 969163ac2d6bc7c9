package cold

import "sync"

// Commits: how updates of a table come from the caller to the readers.
//
// An update has to be in the log, and on the drive if that is durable, before anyone is served it from memory: an acknowledged version is not lost, and no version is seen that a
// restart takes back. And versions of one row must be applied in the order in which the log has them, or memory and log end with different ones.
//
// A lock around both, append and publication, is the obvious way. But the append of a durable log is a sync, which takes 20 us to 10 ms. Under the lock only one update at a
// time can be in the log's queue, so the log, which would sync once for all that wait, syncs once for each: 16 goroutines of updates waited for one another's syncs.
//
// So an update goes through five steps, as in the commit pipeline of pebble (commit.go there):
//
//  1. Write. Under commits.mu the versions are written to the log's file, which gives them their place in its order, and the commit is put behind the last one: it remembers
//     that one's channel. This takes as long as a write to the page cache. Only the first batch of a segment waits until the segment before is synced.
//  2. Sync, without a lock. The log syncs once for all that were written before the sync began (delta.Log.AppendAsync).
//  3. Turn. The commit waits until the one before it has left.
//  4. Apply. The log finds the versions from now on: reads of absent rows, merges and compaction. Before its turn it must not. A reader of an absent row would find a version
//     whose turn has not come, then the one before it in the maps, and then that version again.
//  5. Publish. The versions go to the overlay and into the maps, under the writer's lock. Then the commit leaves, which is the turn of the next one.
//
// While a sync is under way, other updates are written, and readers, cycles and merges take the locks that they need: no lock is held in steps 2 and 3.
// A merge, and compaction, wait until what was written before is applied, and so for the publications before; no publication waits for them.
//
// A commit that fails leaves in its turn, too, and applies and publishes nothing. If that is because a sync has failed, all later ones fail as well, as the log then takes no more.
// From step 1 on a commit cannot be taken back: the log has it. So no context ends it, and Close waits for it, as for any call.
type commits struct {
	mu   sync.Mutex
	last chan struct{} // closed when the last commit that was begun has left
}

// Commit writes versions of rows to the log, and calls publish once they are durable, if the log is, and all commits before have published theirs. stored must not change
// before it returns. If it returns an error without having called publish, these versions are not served until the log is opened again, which may find them.
func (t *Table) Commit(rows []int64, stored [][]byte, compressed []bool, publish func() error) error {
	sync, apply, turn, leave, err := t.begin(rows, stored, compressed)
	if err != nil {
		return err
	}
	defer func() { // also after a panic
		<-turn
		close(leave)
	}()
	if err := sync(); err != nil {
		return err
	}
	<-turn
	apply()
	return publish()
}

// begin is the first step of a commit. turn is closed when it may apply what it has written, and the commit closes leave when it has published that.
func (t *Table) begin(rows []int64, stored [][]byte, compressed []bool) (sync func() error, apply func(), turn <-chan struct{}, leave chan struct{}, err error) {
	t.commits.mu.Lock()
	defer t.commits.mu.Unlock()
	if sync, apply, err = t.o.Log.Append(rows, stored, compressed); err != nil {
		return nil, nil, nil, nil, err
	}
	turn, leave = t.commits.last, make(chan struct{})
	t.commits.last = leave
	return sync, apply, turn, leave, nil
}
