package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Default is the name of the default policy: the one that measures best (docs/admission.md).
const Default = "freq"

// Source says what a policy learns from.
type Source uint8

// Sources.
const (
	FromAccesses Source = iota // training and sampled accesses
	FromGraph                  // Inputs.Graphs
	FromFuture                 // the accesses it will be measured on: no policy, but a ceiling of policies
)

// Spec describes a policy to those who choose one by name.
type Spec struct {
	Name   string
	Learns Source
	// Online says that the ranking follows the accesses; otherwise it stays as it is first used.
	Online bool
	// New makes the policy.
	New func(Inputs) (Policy, error)
}

// Inputs are what a policy may need besides accesses.
type Inputs struct {
	// Graphs are the graphs that are sampled, one a table. Vertices are rows.
	Graphs []Graph
}

// Graph is a directed graph in CSR form: the neighbours of vertex v that sampling may go on to are
// Indices[Indptr[v]:Indptr[v+1]]. It must be valid and not change while a policy uses it.
type Graph struct {
	Indptr  []int64
	Indices []int32
	// Seeds are the vertices that batches start from; one that occurs n times does so n times as often. Default: all.
	Seeds []int32
}

// Vertices is the number of vertices.
func (g *Graph) Vertices() int { return max(len(g.Indptr)-1, 0) }

// inDegrees counts for every vertex the edges that point to it.
func (g *Graph) inDegrees() []uint32 {
	d := make([]uint32, g.Vertices())
	for _, v := range g.Indices {
		d[v]++
	}
	return d
}

var specs = map[string]Spec{}

// register adds a policy, from a package variable of the policy's file.
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

// New makes the named policy.
func New(name string, in Inputs) (Policy, error) {
	s, err := Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	return s.New(in)
}

// simple is New of a policy that needs no inputs and cannot fail.
func simple(make func() Policy) func(Inputs) (Policy, error) {
	return func(Inputs) (Policy, error) { return make(), nil }
}
