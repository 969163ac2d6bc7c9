package workload

import (
	"cmp"
	"errors"
	"fmt"
)

// NgramSpec is what flags say of an n-gram workload. Zero fields but Tokens stand for defaults: those of NgramHashOptions and NgramOptions.
type NgramSpec struct {
	// Tokens is a file for LoadTokens. TextTokens, if not 0, reads a text of so many tokens instead, drawn by SampleText.
	Tokens     string `json:"tokens,omitempty"`
	TextTokens int    `json:"text_tokens,omitempty"`
	Orders     []int  `json:"orders,omitempty"`
	Heads      int    `json:"heads,omitempty"`
	Layers     int    `json:"layers,omitempty"`
	Phase      string `json:"phase,omitempty"`
}

// ReadText returns the text that the workload reads.
func (s *NgramSpec) ReadText(seed uint64) ([]int32, error) {
	if s.Tokens == "" {
		return nil, errors.New("workload: n-grams: a file of tokens must be given")
	}
	if s.TextTokens < 0 {
		return nil, fmt.Errorf("workload: n-grams: TextTokens (%d) must not be negative", s.TextTokens)
	}
	text, err := LoadTokens(s.Tokens)
	if err == nil && s.TextTokens > 0 {
		text = SampleText(text, s.TextTokens, seed)
	}
	return text, err
}

// RowsPerToken is that of the hash.
func (s *NgramSpec) RowsPerToken() int {
	return cmp.Or(s.Layers, 1) * cmp.Or(s.Heads, 8) * cmp.Or(len(s.Orders), 2)
}

// ngram returns the workload that reads the whole text.
func (s *Spec) ngram() (Workload, error) {
	hash, err := NewNgramHash(NgramHashOptions{Orders: s.Orders, Heads: s.Heads, Layers: s.Layers, Rows: s.Rows, Seed: s.Seed})
	if err != nil {
		return nil, err
	}
	text, err := s.ReadText(s.Seed)
	if err != nil {
		return nil, err
	}
	return NewNgram(NgramOptions{Text: text, Hash: hash, Rows: cmp.Or(s.Rows, NgramRows), Phase: Phase(s.Phase), BatchSize: s.BatchSize, Batches: s.Batches})
}
