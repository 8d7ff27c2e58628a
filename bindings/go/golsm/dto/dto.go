// Package dto has the points that golsm stores and gives back, under the names of the original library.
package dto

// Measurement is a point of one tag.
type Measurement struct {
	// Timestamp in milliseconds since 1970 UTC.
	Timestamp uint64
	// Value is bytes of any content, up to a mebibyte.
	Value []byte
}

// TaggedMeasurement is a point with the name of its tag.
type TaggedMeasurement struct {
	// Tag names the series; UTF-8.
	Tag string
	// Timestamp in milliseconds since 1970 UTC.
	Timestamp uint64
	// Value is bytes of any content, up to a mebibyte.
	Value []byte
}
