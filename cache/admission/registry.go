package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Default is the default policy, the one with the highest measured hit rate (docs/admission.md).
const Default = "freq"

// Source says what a policy ranks by.
type Source uint8

// Sources.
const (
	FromAccesses Source = iota // training and sampled accesses
	FromGraph                  // Inputs.Graphs
	FromFuture                 // the accesses it will be measured on: an upper bound for static policies
)

// Spec describes a policy.
type Spec struct {
	Name   string
	Learns Source
	// Online says that the ranking changes with the accesses. Otherwise the first ranking is final.
	Online bool
	// New makes the policy.
	New func(Inputs) (Policy, error)
}

// Inputs are the data besides accesses that a policy may need.
type Inputs struct {
	// Graphs has the graph that is sampled for each table. Its vertices are the table's rows.
	Graphs []Graph
}

// Graph is a directed graph in CSR form. The neighbours that sampling follows from vertex v are
// Indices[Indptr[v]:Indptr[v+1]]. It must be valid, and must not change while a policy uses it.
type Graph struct {
	Indptr  []int64
	Indices []int32
	// Seeds are the vertices that batches start from. A vertex that is listed n times starts n times as many. Default: all.
	Seeds []int32
}

// Vertices returns the number of vertices.
func (g *Graph) Vertices() int { return max(len(g.Indptr)-1, 0) }

// inDegrees returns the number of edges to each vertex.
func (g *Graph) inDegrees() []uint32 {
	d := make([]uint32, g.Vertices())
	for _, v := range g.Indices {
		d[v]++
	}
	return d
}

var specs = map[string]Spec{}

// register adds a policy. Each policy's file calls it to initialise a package variable.
func register(s Spec) struct{} {
	if _, ok := specs[s.Name]; ok {
		panic("admission: policy " + s.Name + " is registered twice")
	}
	specs[s.Name] = s
	return struct{}{}
}

// Names returns the names of all policies, sorted.
func Names() []string { return slices.Sorted(maps.Keys(specs)) }

// Lookup returns the named policy's description, or an error that lists the known names.
func Lookup(name string) (Spec, error) {
	s, ok := specs[name]
	if !ok {
		return Spec{}, fmt.Errorf("unknown policy (%q) must be one of %s", name, strings.Join(Names(), ", "))
	}
	return s, nil
}

// simple is Spec.New of a policy that needs no inputs.
func simple(make func() Policy) func(Inputs) (Policy, error) {
	return func(Inputs) (Policy, error) { return make(), nil }
}
