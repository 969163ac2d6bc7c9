package read

// AwaitLooks returns when no look for replays is under way that Faults has asked for. No call of Faults may be.
func (d *Device) AwaitLooks() { d.captures.looks.Wait() }

// HoldEpoch begins a batch that enqueues nothing, and ends when the returned function is called. Tests use it to hold epochs back.
func (d *Device) HoldEpoch() (end func()) {
	l := d.idleLane()
	if l == nil {
		d.mu.Lock()
		d.mu.opened++
		d.mu.Unlock()
		var err error
		if l, err = d.openLane(); err != nil {
			panic(err)
		}
	}
	l.running.Store(true)
	l.words.Begun.Add(1)
	return func() { d.release(l, nil) }
}
