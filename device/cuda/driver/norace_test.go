//go:build cuda && !race

package driver

const raceEnabled = false
