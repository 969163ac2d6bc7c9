// Package gpu measures the CUDA backend: each case beside a baseline on the same rows in the same run, since absolute
// figures hold on one GPU only. Times are medians by CUDA events, over batches that differ from run to run.
package gpu
