// Package gpu measures the CUDA backend. Each case has a baseline on the same rows in the same run, since absolute figures hold on one
// GPU only. Times are medians by CUDA events over several batches that take turns.
//
// Run returns a Report, from which package predict of the main module predicts batches. goals.go is the table of the goals that were set for its results.
package gpu
