//go:build !race

package headwater

const raceDetector = false
