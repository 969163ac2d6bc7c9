package trace

import (
	"encoding/json"
	"math"
)

// mooncakeDecoder reads JSON lines; the elements of hash_ids are requests, in order.
type mooncakeDecoder struct {
	lines
	ids  []uint64 // of the current line, those left
	time int64
}

func newMooncakeDecoder(s *source) decoder {
	return &mooncakeDecoder{lines: lines{s: s, limit: maxJSONLine}}
}

func (d *mooncakeDecoder) decode(dst []Request) (n int, err error) {
	for n < len(dst) {
		for len(d.ids) == 0 {
			if err := d.line(); err != nil {
				return n, err
			}
		}
		take := min(len(d.ids), len(dst)-n)
		for i, id := range d.ids[:take] {
			dst[n+i] = Request{ID: id, Next: Unknown, Time: d.time}
		}
		n += take
		d.ids = d.ids[take:]
	}
	return n, nil
}

func (d *mooncakeDecoder) line() error {
	line, err := d.next("")
	if err != nil {
		return err
	}
	var request struct {
		Timestamp float64   `json:"timestamp"`
		HashIDs   *[]uint64 `json:"hash_ids"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return d.fault("line must be a JSON object with hash_ids of 0 to 2^64 - 1: %v", err)
	}
	if request.HashIDs == nil {
		return d.fault("line must have hash_ids")
	}
	if !(math.Abs(request.Timestamp) < 1<<62) {
		return d.fault("timestamp (%g) must be below 2^62", request.Timestamp)
	}
	d.ids, d.time = *request.HashIDs, int64(request.Timestamp)
	return nil
}
