//go:build !race

package admission

// raceDetector says that the race detector is on.
const raceDetector = false
