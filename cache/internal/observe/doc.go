// Package observe makes the traces, metrics and logs of a cache, with OpenTelemetry's API and log/slog: spans of calls and of sampled
// batches, events for sampled misses, histograms of batches, and instruments that are read on collection. Without a provider it costs
// a batch the comparison of two pointers.
package observe
