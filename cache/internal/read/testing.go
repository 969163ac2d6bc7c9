package read

// AwaitLooks waits until the looks at replays that Faults has begun have ended. Tests use it. REQUIRES: no other
// goroutine calls Faults.
func (d *Device) AwaitLooks() { d.captures.looks.Wait() }

// HoldEpoch begins a batch that enqueues nothing. The batch ends when the returned function is called. Tests use it
// to delay WaitEpoch.
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
