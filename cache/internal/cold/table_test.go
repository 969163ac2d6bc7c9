package cold

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/pages"
)

const testRowBytes = 1000

// rowOf is the row of this number.
func rowOf(row int64) []byte { return bytes.Repeat([]byte{byte(row)}, testRowBytes) }

// rowsBelow is a Source of all rows.
type rowsBelow struct{}

func (rowsBelow) ReadRows(_ context.Context, rows []int64, visit func(i int, stored []byte, compressed bool, err error)) pages.ReadStats {
	for i, row := range rows {
		visit(i, rowOf(row), false, nil)
	}
	return pages.ReadStats{}
}

// slowLog has the rows from 100 on. It hangs at row 200 until it is closed, and says of row 300, once it reads it, that it has been merged.
type slowLog struct {
	Log
	closed chan struct{}
	mu     sync.Mutex
	rows   int
}

func (l *slowLog) Find(row int64) (stored int, compressed, ok bool) {
	return testRowBytes, false, row >= 100
}

func (l *slowLog) Get(row int64) (stored []byte, compressed, ok bool, err error) {
	if row == 200 {
		<-l.closed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows++
	return rowOf(row), false, row != 300, nil
}

func (l *slowLog) Close() error { close(l.closed); return nil }

// TestTable_LogHangs: a batch does not wait longer for the log's drive than for pages, and gets the rows that it has delivered.
func TestTable_LogHangs(t *testing.T) {
	log := &slowLog{closed: make(chan struct{})}
	table := New(rowsBelow{}, Options{Name: "x", RowBytes: testRowBytes, Timeout: time.Second, Log: log})
	defer table.Close()
	rows := []int64{7, 101, 300, 102, 200}
	got, faults := make([][]byte, len(rows)), make([]error, len(rows))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		table.Deliver(context.Background(), rows, func(i int, stored []byte, _ bool, err error) {
			if got[i] != nil || faults[i] != nil {
				t.Errorf("row %d is visited twice", rows[i])
			}
			got[i], faults[i] = bytes.Clone(stored), err
		})
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the batch waits for the drive")
	}
	for i, row := range rows {
		if row == 200 {
			if err := faults[i]; err == nil || !strings.Contains(err.Error(), "row 200 in the log of updates: no answer within 1s") {
				t.Errorf("row 200: %v", err)
			}
		} else if faults[i] != nil || !bytes.Equal(got[i], rowOf(row)) {
			t.Errorf("row %d: %v", row, faults[i])
		}
	}
	if table.Counts.FromLog.Load() != 2 {
		t.Errorf("%d rows from the log", table.Counts.FromLog.Load())
	}
}

// TestTable_LogEnds: reads of the log end with the table.
func TestTable_LogEnds(t *testing.T) {
	log := &slowLog{closed: make(chan struct{})}
	table := New(rowsBelow{}, Options{Name: "x", RowBytes: testRowBytes, Timeout: time.Hour, Log: log})
	defer table.Close()
	time.AfterFunc(20*time.Millisecond, table.End)
	var fault error
	table.Read(context.Background(), []int64{200}, func(_ int, _ []byte, _ bool, err error) { fault = err })
	if !errors.Is(fault, ErrEnded) {
		t.Errorf("%v", fault)
	}
}

// TestTable_WaitingFlightsAreBounded: rows that wait for the ring take so many bytes at most; one flight is let in also if it is longer.
func TestTable_WaitingFlightsAreBounded(t *testing.T) {
	const flight = 20 // rows
	table := New(rowsBelow{}, Options{Name: "x", RowBytes: testRowBytes, Timeout: time.Minute, Log: NewMemoryLog(0), Waiting: 3*flight*testRowBytes + 10})
	gather := func(n int) {
		rows, at := make([]int64, n), make([]uint32, n)
		for i := range rows {
			rows[i], at[i] = int64(i), uint32(i)
		}
		if o := table.Gather(context.Background(), rows, at, make([]byte, n*testRowBytes), testRowBytes); o.Failed > 0 {
			t.Fatal(o.Err)
		}
	}
	land := func() (flights int) {
		for {
			select {
			case f := <-table.Completed():
				table.Release(f)
				flights++
			default:
				return flights
			}
		}
	}
	for range 2 {
		for range 10 {
			gather(flight)
		}
		if n := land(); n != 3 {
			t.Errorf("%d flights waited, want 3", n)
		}
	}
	if n := table.Counts.Dropped.Load(); n != 14*flight {
		t.Errorf("%d rows were dropped, want %d", n, 14*flight)
	}
	gather(10 * flight)
	gather(1)
	if n := land(); n != 1 {
		t.Errorf("%d flights waited, want the long one", n)
	}
}
