package npy

import "github.com/tensorcache/tensorcache/internal/datafile"

// inFile adds the name of the file, or of the array of an archive, to an error that has none yet.
func inFile(name string, err error) error { return datafile.Named("npy", name, err) }

func readError(what string, err error) error { return datafile.ReadError(what, err) }

func clip(s string) string { return datafile.Clip(s) }
