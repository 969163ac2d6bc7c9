package pages

import "os"

// MergeChild is what a child process of TestMerge_Killed does: see merge_crash_test.go.
var MergeChild func(dir string) error

// OnWrites has f called before each write and sync of page files, and before and after a manifest is replaced. write does the write, or a part of it.
func OnWrites(f func(write func(part float64))) {
	write, syncing, manifest := writeTo, syncFile, writeManifest
	writeTo = func(file *os.File, b []byte) (int, error) {
		f(func(part float64) { write(file, b[:int(part*float64(len(b)))]) })
		return write(file, b)
	}
	syncFile = func(file *os.File) error {
		f(func(float64) {})
		return syncing(file)
	}
	writeManifest = func(path string, b []byte) error {
		f(func(float64) {})
		err := manifest(path, b)
		f(func(float64) {})
		return err
	}
}
