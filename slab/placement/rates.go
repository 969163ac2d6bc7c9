package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Rates are how fast a device reads rows at random, all rows of a batch together. Local is the bytes of decoded rows from its
// own slab, Peer and Host the stored bytes from another device's slab and from the host tier; 10^9 bytes a second. Overhead is
// what a batch takes besides, in microseconds, and Row what every row of it does, in nanoseconds: its lookup above all. Hits are
// read beside misses; Beside is the share, 0 to 1, of the shorter of the two times that the batch takes longer all the same. Reads of
// one row of a peer's slab queue up: Same is what each takes of a batch, in nanoseconds, beyond what it takes by Peer.
type Rates struct {
	Local    float64 `json:"local_gb_per_second"`
	Peer     float64 `json:"peer_gb_per_second"`
	Host     float64 `json:"host_gb_per_second"`
	Overhead float64 `json:"batch_overhead_us"`
	Row      float64 `json:"row_ns,omitempty"`
	Beside   float64 `json:"beside,omitempty"`
	Same     float64 `json:"same_row_ns,omitempty"`
}

// Measured are rates and how they were come by, as `cachebench devices --measure` writes them.
type Measured struct {
	Rates
	// Source says what the rates are of; Emulated that they are declared, not measured.
	Source   string `json:"source"`
	Emulated bool   `json:"emulated,omitempty"`
	// RowBytes and Batch are the rows that were read.
	RowBytes int `json:"row_bytes,omitempty"`
	Batch    int `json:"batch,omitempty"`
	// Devices are each device's own rates, and Pairs what device From reads of To's memory.
	Devices []DeviceRates `json:"devices,omitempty"`
	Pairs   []PairRate    `json:"pairs,omitempty"`
}

// DeviceRates are one device's.
type DeviceRates struct {
	Index int     `json:"index"`
	Local float64 `json:"local_gb_per_second"`
	Host  float64 `json:"host_gb_per_second"`
}

// PairRate is what one device reads of another's memory.
type PairRate struct {
	From int     `json:"from"`
	To   int     `json:"to"`
	Rate float64 `json:"gb_per_second"`
}

// Validate says which rates are out of range.
func (r Rates) Validate() error {
	var errs []error
	for _, x := range []struct {
		what  string
		value float64
	}{{"local", r.Local}, {"peer", r.Peer}, {"host", r.Host}} {
		if !(x.value > 0 && x.value <= 1e6) {
			errs = append(errs, fmt.Errorf("placement: rate %s (%g GB/s) must be above 0, at most 10^6", x.what, x.value))
		}
	}
	if !(r.Overhead >= 0 && r.Overhead <= 1e9) {
		errs = append(errs, fmt.Errorf("placement: overhead (%g us) must be 0 to 10^9", r.Overhead))
	}
	for _, x := range []struct {
		what  string
		value float64
	}{{"row", r.Row}, {"same", r.Same}} {
		if !(x.value >= 0 && x.value <= 1e9) {
			errs = append(errs, fmt.Errorf("placement: %s (%g ns) must be 0 to 10^9", x.what, x.value))
		}
	}
	if !(r.Beside >= 0 && r.Beside <= 1) {
		errs = append(errs, fmt.Errorf("placement: beside (%g) must be 0 to 1", r.Beside))
	}
	return errors.Join(errs...)
}

// DecodeRates reads rates as `cachebench devices --measure` writes them.
func DecodeRates(from io.Reader) (m Measured, err error) {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, fmt.Errorf("placement: rates must be one JSON object as devices --measure writes it: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("placement: rates must be one JSON object: more follows it")
	}
	return m, m.Validate()
}

// ParseRates reads rates as a flag has them: "local=1900,peer=350,host=50", GB/s, and perhaps "overhead=20", in
// microseconds, "row=0.1" and "same=15", in nanoseconds, and "beside=0.5".
func ParseRates(text string) (r Rates, err error) {
	given := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		value, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(value) {
			return r, fmt.Errorf("placement: rate (%q) must be name=number", part)
		}
		to := map[string]*float64{"local": &r.Local, "peer": &r.Peer, "host": &r.Host, "overhead": &r.Overhead, "row": &r.Row, "beside": &r.Beside, "same": &r.Same}[name]
		if to == nil || given[name] {
			return r, fmt.Errorf("placement: rate (%q) must be one of local, peer, host, overhead, row, beside and same, each once", part)
		}
		*to, given[name] = value, true
	}
	return r, r.Validate()
}
