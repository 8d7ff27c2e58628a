// Package headwater is an embedded time-series database: measured values and events of devices, each with a time, are written
// from many goroutines, survive a crash once they are acknowledged, and are read back as rows, as aggregates over any span, or as
// what a screen can show of it.
//
// A database is a folder. A stream is a table and the tags of one device; a row of it has a time and fields.
//
//	db, err := headwater.Open("data")
//	if err != nil { … }
//	defer db.Close()
//	pump, err := db.Stream("pumps", headwater.Tags{"id": "p1"})
//	if err != nil { … }
//	var batch headwater.Batch
//	if err := batch.Row(pump, time.Now(), headwater.Float64("pressure", 4.2)); err != nil { … }
//	if _, err := db.Write(ctx, &batch); err != nil { … }
//	for row, err := range db.Scan(ctx, pump, headwater.Query{}) {
//		if err != nil { … }
//		pressure, _ := row.Float64("pressure")
//		fmt.Println(row.Time(), pressure)
//	}
//
// Errors are compared with [errors.Is]: [ErrNotFound], [ErrInvalid], [ErrBusy] and the others. Times are nanoseconds since 1970
// UTC within the years 1677 to 2262. The package calls a library in C, which `make go` builds.
package headwater
