// Package gpu measures the CUDA backend. Each case has a baseline on the same rows in the same run, since absolute figures hold on one
// GPU only. Times are medians by CUDA events over several batches that take turns.
//
// Run returns a Report, which is also the JSON of cachebench gpu-bench. Its results have the goals that were set for them. Package report
// prints and draws reports. Folder gpurecord has the command that runs GPU tests and keeps their record.
package gpu
