//go:build cgo

package main

import "github.com/tensorcache/tensorcache/cache/admission"

// rowsEstimate is what the policy thinks of a row: see admission.Estimate.
type rowsEstimate struct {
	Frequency float64 `json:"frequency"`
	Score     float64 `json:"score"`
	Victim    float64 `json:"victim_score"`
	Rejected  bool    `json:"rejected"`
}

func estimateOf(e *admission.Estimate) *rowsEstimate {
	if e == nil {
		return nil
	}
	return &rowsEstimate{e.Frequency, e.Score, e.Victim, e.Rejected}
}
