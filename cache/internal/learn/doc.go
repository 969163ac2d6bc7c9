// Package learn feeds the admission policy: with training batches when a cache is opened, and from sampled accesses while it
// serves. It also estimates the hit rate at other budgets from the accesses to sampled keys.
package learn
