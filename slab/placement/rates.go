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

// Rates are how fast a device reads random rows of a batch, in GB/s (10^9 bytes a second), above 0 and at most 10^6, while all devices
// run batches.
type Rates struct {
	// Local is for hits in the device's own slab, in decoded bytes.
	Local float64 `json:"local_gb_per_second"`
	// Peer is for hits in another device's slab, in stored bytes.
	Peer float64 `json:"peer_gb_per_second"`
	// Host is for misses, in stored bytes of the host tier.
	Host float64 `json:"host_gb_per_second"`
}

// withdrawn are terms of an earlier cost model: a batch's and a row's own time, the part of hits that misses do not hide, and reads of one
// row that queue. Their JSON keys and names are still read, and ignored.
type withdrawn struct {
	Overhead float64 `json:"batch_overhead_us"`
	Row      float64 `json:"row_ns"`
	Beside   float64 `json:"beside"`
	Same     float64 `json:"same_row_ns"`
}

// Measured are rates and where they come from: the JSON object of `cachebench devices --measure`.
type Measured struct {
	Rates
	// Source names the devices. Emulated means that a user declared the rates.
	Source   string `json:"source"`
	Emulated bool   `json:"emulated,omitempty"`
	// RowBytes is the length of the rows that were read, and Batch how many were read at once.
	RowBytes int `json:"row_bytes,omitempty"`
	Batch    int `json:"batch,omitempty"`
	// Devices and Pairs are plain reads of uncompressed rows, to compare with.
	Devices []DeviceRates `json:"devices,omitempty"`
	Pairs   []PairRate    `json:"pairs,omitempty"`
}

// DeviceRates are what one device reads of its own memory and of page-locked memory, in GB/s.
type DeviceRates struct {
	Index int     `json:"index"`
	Local float64 `json:"local_gb_per_second"`
	Host  float64 `json:"host_gb_per_second"`
}

// PairRate is what device From reads of device To's memory, in GB/s.
type PairRate struct {
	From int     `json:"from"`
	To   int     `json:"to"`
	Rate float64 `json:"gb_per_second"`
}

// Validate reports all rates that are out of range.
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
	return errors.Join(errs...)
}

// DecodeRates reads rates as `cachebench devices --measure` writes them.
func DecodeRates(from io.Reader) (m Measured, err error) {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	var in struct {
		Measured
		withdrawn
	}
	if err := d.Decode(&in); err != nil {
		return m, fmt.Errorf("placement: rates must be one JSON object as devices --measure writes it: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("placement: rates must be one JSON object: more follows it")
	}
	return in.Measured, in.Validate()
}

// ParseRates reads rates as a flag has them, in GB/s: "local=1900,peer=350,host=50".
func ParseRates(text string) (r Rates, err error) {
	var old withdrawn
	to := map[string]*float64{
		"local": &r.Local, "peer": &r.Peer, "host": &r.Host, "overhead": &old.Overhead, "row": &old.Row, "beside": &old.Beside, "same": &old.Same,
	}
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		value, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(value) {
			return r, fmt.Errorf("placement: rate (%q) must be name=number", part)
		}
		if to[name] == nil {
			return r, fmt.Errorf("placement: rate (%q) must be one of local, peer and host, each once", part)
		}
		*to[name], to[name] = value, nil
	}
	return r, r.Validate()
}
