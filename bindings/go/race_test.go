//go:build race

package headwater

// raceDetector keeps memory of its own.
const raceDetector = true
