// Package demand simulates caches that are filled on demand, at one cache size and policy or at many side by side: each access of a row
// that is not held is a miss, which admits the row and evicts others as the policy says. It knows rows by dense numbers
// and their sizes, and nothing of their content.
//
// Terms: a trace's rows are numbered 0, 1, 2, … in the order of their first access ([Load]); a [Policy] names an algorithm
// and a cache is one run of it. Sizes are bytes, or 1 for every row where only rows count ([Trace.Unit]).
//
// A trace is loaded once and then only read, so any number of simulations may run on it at once. A simulation allocates
// what it needs before its first request, but for queues that grow to a multiple of the rows held, and is used by one goroutine.
package demand
