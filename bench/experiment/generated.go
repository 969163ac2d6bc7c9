package experiment

import (
	"fmt"
	"strings"
)

// GeneratedLookups says what lookups are made from that no file has. Hit rates of those without a From say nothing about other lookups.
type GeneratedLookups struct {
	// Distribution says which rows are looked up.
	Distribution string `json:"distribution"`
	Seed         uint64 `json:"seed"`
	// From is the file of the graph that is sampled, or of the text that another one is drawn from; "" if there is none.
	From string `json:"from,omitempty"`
}

// describeLookups returns how the lookups are generated, nil if a file has them. REQUIRES: load.
func (r *run) describeLookups() *GeneratedLookups {
	c := &r.cfg
	law := "by a power law, P(rank) ∝ 1/rank" // tablesExponent is 1
	switch {
	case c.IDs != "", c.readsText() && c.TextTokens == 0:
		return nil
	case c.readsText():
		return &GeneratedLookups{fmt.Sprintf("n-grams of a text of %d tokens that is drawn by the pairs of the given one", len(r.text)), c.dataSeed(), c.Tokens}
	case r.tables != nil:
		return &GeneratedLookups{"rows of each table " + law, c.Seed, ""}
	case c.Workload == Embedding:
		return &GeneratedLookups{fmt.Sprintf("bags of %d rows %s", c.bag(), law), c.Seed, ""}
	}
	fanouts := strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Fanouts), " ", ","), "[]")
	g := &GeneratedLookups{fmt.Sprintf("vertices in random order and %s neighbours of each, hop by hop", fanouts), c.Seed, c.Graph}
	if c.Weighted {
		g.Distribution += ", by the edges' weights"
	}
	if c.Graph == "" {
		g.Distribution += fmt.Sprintf(", in a generated graph of %.0f edges a vertex, whose targets follow a power law", float64(len(r.graph.Indices))/float64(r.graph.Vertices()))
	}
	return g
}
