// Package gpu measures the CUDA backend: each case beside a baseline on the same rows in the same run, since absolute
// figures hold on one GPU only. Times are medians by CUDA events, over batches that differ from run to run.
//
// A Report is what a run found, and what its JSON holds; results carry the goals that they were to reach. Package report
// prints and draws it.
package gpu
