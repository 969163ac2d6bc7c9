module github.com/tensorcache/tensorcache

go 1.26.0

require (
	github.com/dgraph-io/ristretto/v2 v2.4.2
	github.com/sbinet/npyio v0.6.0
	gorgonia.org/cu v0.9.6
	pgregory.net/rapid v1.3.0
)

require (
	github.com/campoy/embedmd v1.0.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.1.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/sys v0.36.0 // indirect
	gonum.org/v1/gonum v0.9.3 // indirect
)
