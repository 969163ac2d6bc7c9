package trace

import (
	"context"
	"io"
	"math"
)

// About is what a trace says of itself.
type About struct {
	Format string
	Keeps  Keeps
	// Header is a tct trace's, known after the first Read; Lost the accesses that its capture lost up to where it was read.
	Header Header
	Lost   int64
}

// Describe returns what is known of a trace that Open returned; of other Readers, nothing.
func Describe(r Reader) About {
	a := About{Header: Header{Rate: 1}}
	if r, ok := r.(*reader); ok {
		a.Format, a.Keeps = r.format.name, r.format.keeps
		if d, ok := r.decoder.(*blockDecoder); ok {
			a.Header, a.Lost = d.header, d.lost
		}
	}
	return a
}

// Summary is what a trace holds.
type Summary struct {
	Requests int64 `json:"requests"`
	Gets     int64 `json:"gets"`
	Sets     int64 `json:"sets"`
	Deletes  int64 `json:"deletes"`
	// IDs are distinct ones; OnceIDs of them occur in a single get. Both are of gets.
	IDs     int64 `json:"ids"`
	OnceIDs int64 `json:"ids_once"`
	// RequestedBytes are the sizes of all gets, WorkingSetBytes those of the distinct IDs of all operations, each as its first request
	// has it.
	RequestedBytes  float64 `json:"requested_bytes"`
	WorkingSetBytes float64 `json:"working_set_bytes"`
	SmallestBytes   int64   `json:"smallest_bytes"`
	LargestBytes    int64   `json:"largest_bytes"`
	// ColdMissRatio is the miss ratio of gets in a cache that holds everything.
	ColdMissRatio float64 `json:"cold_miss_ratio"`
	SmallestID    uint64  `json:"smallest_id"`
	LargestID     uint64  `json:"largest_id"`
	FirstTime     int64   `json:"first_time"`
	LastTime      int64   `json:"last_time"`
	// Hits and Misses are those that a capture saw; NextKnown the requests whose next access is stated.
	Hits      int64 `json:"captured_hits"`
	Misses    int64 `json:"captured_misses"`
	NextKnown int64 `json:"next_access_known"`
}

// seen is what Summarize keeps of an ID.
type seen struct {
	size int64 // of the first request
	gets int8  // 2: two or more
}

// Summarize reads a trace to its end. Its memory grows with the distinct IDs, about 40 bytes each.
// With an error it returns the summary of what came before.
func Summarize(ctx context.Context, r Reader) (Summary, error) {
	s := Summary{SmallestID: math.MaxUint64, SmallestBytes: math.MaxInt64}
	ids := map[uint64]seen{}
	buf := make([]Request, blockRequests)
	var failure error
	for failure == nil {
		if failure = ctx.Err(); failure != nil {
			break
		}
		var n int
		n, failure = r.Read(buf)
		for i := range buf[:n] {
			s.add(&buf[i], ids)
		}
	}
	if failure == io.EOF {
		failure = nil
	}
	for _, id := range ids {
		s.WorkingSetBytes += float64(id.size)
		if id.gets > 0 {
			s.IDs++
		}
		if id.gets == 1 {
			s.OnceIDs++
		}
	}
	if s.Requests == 0 {
		s.SmallestID, s.SmallestBytes = 0, 0
	}
	if s.Gets > 0 {
		s.ColdMissRatio = float64(s.IDs) / float64(s.Gets)
	} else {
		s.SmallestBytes = 0
	}
	return s, failure
}

// add counts a request.
func (s *Summary) add(r *Request, ids map[uint64]seen) {
	if s.Requests == 0 {
		s.FirstTime = r.Time
	}
	s.Requests++
	s.LastTime = r.Time
	s.SmallestID, s.LargestID = min(s.SmallestID, r.ID), max(s.LargestID, r.ID)
	if r.Next != Unknown {
		s.NextKnown++
	}
	id, known := ids[r.ID]
	if !known {
		id.size = r.Size
	}
	if r.Op == Get {
		id.gets = min(2, id.gets+1)
	}
	ids[r.ID] = id
	switch r.Op {
	case Set:
		s.Sets++
		return
	case Delete:
		s.Deletes++
		return
	}
	s.Gets++
	switch r.Outcome {
	case Hit:
		s.Hits++
	case Miss:
		s.Misses++
	}
	s.RequestedBytes += float64(r.Size)
	s.SmallestBytes, s.LargestBytes = min(s.SmallestBytes, r.Size), max(s.LargestBytes, r.Size)
}
