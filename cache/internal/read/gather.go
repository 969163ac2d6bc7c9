package read

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// MaxBatch is the most rows of a batch, as positions are 32 bits wide.
const MaxBatch = 1<<31 - 1

// RowNumber is the type of a row number.
type RowNumber interface{ int32 | int64 }

// RowNumbers are the row numbers of a batch, in memory that the device addresses.
type RowNumbers struct {
	Buffer device.Buffer
	Int32  bool // false: int64
}

// bytes returns the size of one row number.
func (r RowNumbers) bytes() int64 {
	if r.Int32 {
		return 4
	}
	return 8
}

// Len returns the number of row numbers.
func (r RowNumbers) Len() int64 { return r.Buffer.Size() / r.bytes() }

// at returns row number i. REQUIRES: the host addresses the memory.
func (r RowNumbers) at(i int) int64 {
	mem := unsafe.Pointer(unsafe.SliceData(r.Buffer.Bytes()))
	if r.Int32 {
		return int64(unsafe.Slice((*int32)(mem), i+1)[i])
	}
	return unsafe.Slice((*int64)(mem), i+1)[i]
}

// memoryOf returns the memory of a slice of row numbers.
func memoryOf[R RowNumber](rows []R) RowNumbers {
	size := int(unsafe.Sizeof(*new(R)))
	memory := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rows))), len(rows)*size)
	return RowNumbers{device.HostBuffer(memory), size == 4}
}

// Gather writes the rows of a table to mem, which is Go memory, and returns when they are written. Rows are written
// stride bytes apart; 0 means back to back. trace, if not nil, records the batch. ctx is checked before work begins.
// REQUIRES: CheckGather accepts the arguments.
func Gather[R RowNumber](ctx context.Context, d *Device, table int, rows []R, mem []byte, stride int64, trace *Trace) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(rows) == 0 {
		return nil
	}
	if d.IsLost() {
		return d.LostError()
	}
	out := outputOf(d.set.Tables[table], mem, stride)
	done, err := d.gatherPresent(ctx, table, memoryOf(rows), out, trace)
	if err != nil {
		return err
	}
	return done.finish(ctx, d, table, len(rows), out, trace)
}

// gatherPresent gathers the rows in slabs and host tier to memory that the host addresses. It leaves absent rows to
// Outcome.finish, as reading them may take long. By then the batch has given back its lane, lists and staging memory,
// which other batches may need.
func (d *Device) gatherPresent(ctx context.Context, table int, rows RowNumbers, out output, trace *Trace) (done Outcome, err error) {
	t, n, width := d.set.Tables[table], int(rows.Len()), rows.bytes()
	part := n
	var area *staging
	var mem []byte // holds a part's rows back to back, where the output's are further apart
	switch {
	case d.Device.NeedsStaging():
		part = max(1, min(part, stagedBytes/out.row))
		if area, err = d.takeStaging(ctx); err != nil {
			return done, err
		}
		defer func() { d.stagings <- area }()
	case out.stride != out.row:
		part = max(1, min(part, contiguousBytes/out.row))
		p := takeContiguous(part * out.row)
		defer contiguous.Put(p)
		mem = *p
	}
	r, planned := d.decide(table, int64(part), trace != nil)
	r.deferred = r.absent
	l, err := d.acquire(ctx, r, part)
	if err != nil {
		return done, d.orLost(err)
	}
	defer d.release(l, nil)
	if err := l.begin(ctx, table); err != nil {
		return done, err
	}
	l.startTrace(trace, planned)
	for from := 0; from < n; from += part {
		to := min(from+part, n)
		rows, out := RowNumbers{rows.Buffer.Slice(int64(from)*width, int64(to)*width), rows.Int32}, out.from(from)
		switch size := (to - from) * out.row; {
		case area != nil:
			err = l.runStaged(area, table, rows, out)
		case mem == nil:
			err = l.run(table, rows, out.mem[:size])
		default:
			if err = l.run(table, rows, mem[:size]); err == nil {
				out.putParallel(0, mem[:size])
			}
		}
		if err != nil {
			return done, d.wrap(err, n, t)
		}
		done.add(kernels.CountersView(l.result), from)
		done.absent = l.takeAbsent(done.absent, from)
		l.tracePart(from, &cold.Outcome{})
	}
	done.note(l, table)
	return done, nil
}

// finish reads the absent rows that gatherPresent has left, if any. Then it counts the batch, of n rows, and returns
// its error.
func (o *Outcome) finish(ctx context.Context, d *Device, table, n int, out output, trace *Trace) error {
	if o.absent != nil {
		absent := d.set.Tables[table].Absent.Gather(ctx, o.absent.Rows, o.absent.Positions, out.mem, out.stride)
		o.addAbsent(&absent, 0)
		if trace != nil {
			trace.Done.addAbsent(&absent, 0)
		}
	}
	return o.reportReplays(d, table, n, 1)
}

// run gathers into memory that the device addresses, and waits until that is written.
func (l *lane) run(table int, rows RowNumbers, out []byte) error {
	err := l.enqueue(l.stream, table, rows, device.HostBuffer(out))
	if err == nil {
		err = l.done.Synchronize()
	}
	return l.finish(err)
}

// Next returns the device for the next batch: devices that are not lost take turns. If all are lost, which happens in
// a client of a shared cache, it returns one of these.
func (s *Set) Next() (d *Device) {
	for range s.Devices {
		d = s.Devices[(s.turn.Add(1)-1)%uint64(len(s.Devices))]
		if !d.IsLost() {
			return d
		}
	}
	return d
}

// CheckGather returns an error if an argument of Gather is out of range.
func CheckGather[R RowNumber](t *Table, rows []R, out []byte, stride int64) error {
	if err := t.checkOut(int64(len(rows)), int64(len(out)), stride); err != nil {
		return err
	}
	return CheckRows(t, rows)
}

// checkOut returns an error for a batch with too many rows, or with an output of the wrong size.
func (t *Table) checkOut(n, bytes, stride int64) error {
	if n > MaxBatch {
		return fmt.Errorf("cache: batch (%d rows) must have at most %d", n, MaxBatch)
	}
	rowBytes, apart := int64(t.Tier.RowBytes()), stride
	if stride == 0 {
		apart = rowBytes
	}
	switch want := max(0, n-1)*apart + min(n, 1)*rowBytes; {
	case stride != 0 && (stride < rowBytes || stride > 1<<40):
		return fmt.Errorf("%w: distance of rows (%d bytes) must be 0, or from the %d bytes of a row of table %s to 2^40", ErrOutput, stride, rowBytes, t.Name)
	case n > 0 && apart > (1<<62)/n:
		return fmt.Errorf("%w: rows (%d of table %s, %d bytes apart) must take less than 2^62 bytes", ErrOutput, n, t.Name, apart)
	case bytes != want && stride != 0:
		return fmt.Errorf("%w: %d bytes for %d rows of table %s, %d bytes apart, must be %d", ErrOutput, bytes, n, t.Name, stride, want)
	case bytes != want:
		return fmt.Errorf("%w: %d bytes for %d rows of table %s must be %d", ErrOutput, bytes, n, t.Name, want)
	}
	return nil
}

// CheckRows returns an error that wraps ErrRows for row numbers outside the table. It names the first and counts
// them.
func CheckRows[R RowNumber](t *Table, rows []R) error {
	first, bad, limit := 0, 0, t.Tier.Rows()
	for i, r := range rows {
		if uint64(int64(r)) >= uint64(limit) {
			if bad == 0 {
				first = i
			}
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%w: row number (%d) at position %d must be 0 to %d of table %s; %d of %d are out of range",
		ErrRows, rows[first], first, limit-1, t.Name, bad, len(rows))
}
