// Package observe shows what a cache does, by OpenTelemetry's API and log/slog: spans of calls and of sampled batches with their misses
// explained, histograms of batches, and instruments that are read when they are collected. It costs two pointer comparisons a batch
// while no provider is set.
package observe
