package headwater

// #include "headwater.h"
import "C"

import (
	"runtime"
	"time"
)

// Option is a setting of Open.
type Option func(*config)

// config holds the options that were given; a change is applied to the defaults of the library.
type config struct {
	changes    []func(*C.hw_options)
	latePolicy string
}

func option(change func(*C.hw_options)) Option {
	return func(c *config) { c.changes = append(c.changes, change) }
}

// MemoryBudget bounds the memory for events not yet in files, for caches and for flushes, in bytes. Default 64 MiB.
func MemoryBudget(bytes int) Option {
	return option(func(o *C.hw_options) { o.memory_budget_bytes = C.size_t(max(bytes, 0)) })
}

// Synced lets Write return when the batch is on the medium: it survives a power cut. The default.
func Synced() Option {
	return option(func(o *C.hw_options) { o.durability = C.HW_SYNCED })
}

// SyncedEvery lets Write return when the batch was handed to the operating system, and syncs it at least this often: it survives
// the end of the process; a power cut loses at most about this much time.
func SyncedEvery(interval time.Duration) Option {
	return option(func(o *C.hw_options) {
		o.durability = C.HW_EVERY
		o.durability_interval_ns = C.int64_t(interval)
	})
}

// Unsynced lets Write return when the batch was handed to the operating system: it survives the end of the process, not a power cut.
func Unsynced() Option {
	return option(func(o *C.hw_options) { o.durability = C.HW_WRITTEN })
}

// MustExist refuses to make a new database.
func MustExist() Option {
	return option(func(o *C.hw_options) { o.must_exist = 1 })
}

// ReadOnly opens a database to read it, also while another process writes to it. It takes no lock and changes no file. DB.Refresh
// shows what was written since.
func ReadOnly() Option {
	return option(func(o *C.hw_options) { o.read_only = 1 })
}

// Shards sets the number of shards of a new database, 1 to 64: how many processors work at storing. Default: processors, at most 4.
func Shards(n int) Option {
	return option(func(o *C.hw_options) { o.shards = C.uint16_t(min(max(n, 0), 1<<16-1)) })
}

// LatePolicy sets who decides how events in and out of order share memory: "adaptive" (the default), "conventional",
// "separate:SHARE" … as docs/operate/settings.md describes late.policy.
func LatePolicy(policy string) Option {
	return func(c *config) { c.latePolicy = policy }
}

// LeafEvents sets how many events of a stream are compressed together, 16 to 65,536, in tables that do not say otherwise. Default 2,048.
func LeafEvents(n int) Option {
	return option(func(o *C.hw_options) { o.leaf_events = C.uint32_t(min(max(n, 0), 1<<31)) })
}

// MaxFuture refuses events that are later than the clock by more than this. Default: none is.
func MaxFuture(limit time.Duration) Option {
	return option(func(o *C.hw_options) { o.max_future_ns = C.int64_t(limit) })
}

// BusyTimeout is the longest wait of a write for memory before it fails with ErrBusy. Default 5 s.
func BusyTimeout(limit time.Duration) Option {
	return option(func(o *C.hw_options) { o.busy_timeout_ns = C.int64_t(limit) })
}

// MaxBatchBytes is the size of the largest batch. Default 16 MiB.
func MaxBatchBytes(bytes int) Option {
	return option(func(o *C.hw_options) { o.batch_bytes_max = C.size_t(max(bytes, 0)) })
}

// MaxValueBytes is the length of the longest string or byte value. Default 1 MiB.
func MaxValueBytes(bytes int) Option {
	return option(func(o *C.hw_options) { o.string_bytes_max = C.size_t(max(bytes, 0)) })
}

// ReserveBytes is space kept free for a full disk, so that what was taken in can be stored and deletes work. Default 8 MiB.
func ReserveBytes(bytes int) Option {
	return option(func(o *C.hw_options) { o.reserve_bytes = C.uint64_t(max(bytes, 0)) })
}

// CompactionLimits bounds what compaction writes, for media that wear out or are slow: bytes a second, and bytes a day (UTC). 0 =
// no limit, the default.
func CompactionLimits(perSecond, perDay int64) Option {
	return option(func(o *C.hw_options) {
		o.compaction_bytes_per_second = C.uint64_t(max(perSecond, 0))
		o.compaction_bytes_per_day = C.uint64_t(max(perDay, 0))
	})
}

// open opens the database with these options.
func (c *config) open(dir string) (C.hw_db, error) {
	var e C.hw_error
	var options C.hw_options
	if C.hw_options_init(&options, C.sizeof_hw_options, &e) != C.HW_OK {
		return 0, take(&e)
	}
	for _, change := range c.changes {
		change(&options)
	}
	var pinner runtime.Pinner
	defer pinner.Unpin()
	options.late_policy = pinned(&pinner, c.latePolicy)
	var db C.hw_db
	if C.hw_open(text(dir), &options, &db, &e) != C.HW_OK {
		return 0, take(&e)
	}
	return db, nil
}
