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
	fastDir    string
	fastParts  string
	ioBackend  string
	placement  string
}

func option(change func(*C.hw_options)) Option {
	return func(c *config) { c.changes = append(c.changes, change) }
}

// MemoryBudget bounds the memory for events not yet in files, for caches and for flushes, in bytes. Default 64 MiB.
func MemoryBudget(bytes int) Option {
	return option(func(o *C.hw_options) { o.memory_budget_bytes = C.size_t(max(bytes, 0)) })
}

// Synced lets Write return when the batch is on disk: it survives a power failure. The default.
func Synced() Option {
	return option(func(o *C.hw_options) { o.durability = C.HW_SYNCED })
}

// SyncedEvery lets Write return when the batch was handed to the operating system, and syncs it at least this often: it survives
// a crash of the process; a power failure loses at most about this much time.
func SyncedEvery(interval time.Duration) Option {
	return option(func(o *C.hw_options) {
		o.durability = C.HW_EVERY
		o.durability_interval_ns = C.int64_t(interval)
	})
}

// Unsynced lets Write return when the batch was handed to the operating system: it survives a crash of the process, not a power failure.
func Unsynced() Option {
	return option(func(o *C.hw_options) { o.durability = C.HW_WRITTEN })
}

// MustExist refuses to create a new database.
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

// LatePolicy sets how events in and out of order share memory: "adaptive" (the default), "conventional",
// "separate:SHARE" … as docs/operate/settings.md describes late.policy.
func LatePolicy(policy string) Option {
	return func(c *config) { c.latePolicy = policy }
}

// LeafEvents sets how many events of a stream are compressed together, 16 to 65,536, in tables that do not set it. Default 2,048.
func LeafEvents(n int) Option {
	return option(func(o *C.hw_options) { o.leaf_events = C.uint32_t(min(max(n, 0), 1<<31)) })
}

// MaxFuture refuses events further in the future than this. Default: no limit.
func MaxFuture(limit time.Duration) Option {
	return option(func(o *C.hw_options) { o.max_future_ns = C.int64_t(limit) })
}

// BusyTimeout is the maximum time that a write waits for memory before it fails with ErrBusy. Default 5 s.
func BusyTimeout(limit time.Duration) Option {
	return option(func(o *C.hw_options) { o.busy_timeout_ns = C.int64_t(limit) })
}

// MaxBatchBytes is the maximum size of a batch. Default 16 MiB.
func MaxBatchBytes(bytes int) Option {
	return option(func(o *C.hw_options) { o.batch_bytes_max = C.size_t(max(bytes, 0)) })
}

// MaxValueBytes is the maximum length of a string or byte value. Default 1 MiB.
func MaxValueBytes(bytes int) Option {
	return option(func(o *C.hw_options) { o.string_bytes_max = C.size_t(max(bytes, 0)) })
}

// ReserveBytes is the maximum space reserved for a full disk, so that accepted writes can be flushed and deletes work; it grows with the
// log, from 1 MiB. Default 8 MiB.
func ReserveBytes(bytes int) Option {
	return option(func(o *C.hw_options) { o.reserve_bytes = C.uint64_t(max(bytes, 0)) })
}

// CompactionLimits bounds what compaction writes, for devices that wear out or are slow: bytes per second, and bytes per day (UTC). 0 =
// no limit, the default.
func CompactionLimits(perSecond, perDay int64) Option {
	return option(func(o *C.hw_options) {
		o.compaction_bytes_per_second = C.uint64_t(max(perSecond, 0))
		o.compaction_bytes_per_day = C.uint64_t(max(perDay, 0))
	})
}

// LateMergeInterval merges a late buffer that does not fill after this time, at least 1 s; below 0 it waits. Default 10 min.
func LateMergeInterval(interval time.Duration) Option {
	return option(func(o *C.hw_options) { o.late_merge_interval_ns = C.int64_t(interval) })
}

// IdleAfter flushes the events in memory and releases unneeded log files after this time without a write; below 0 never. Default 30 s.
func IdleAfter(idle time.Duration) Option {
	return option(func(o *C.hw_options) { o.idle_after_ns = C.int64_t(idle) })
}

// FastTier puts parts of the database into a folder on a small fast device: "log", "pins", "index", "newest", or several, separated
// by commas. Without it the database uses its existing tier. docs/operate/tiers.md describes what to place there, and what is lost if it fails.
func FastTier(dir, parts string) Option {
	return func(c *config) { c.fastDir, c.fastParts = dir, parts }
}

// FastTierBytes is the maximum size of a fast tier, shared by its parts; 0, the default, leaves the limits of each part.
func FastTierBytes(bytes int64) Option {
	return option(func(o *C.hw_options) { o.fast_bytes = C.uint64_t(max(bytes, 0)) })
}

// FastTierIndexBytes is the maximum size of the index of segments in a fast tier, if it is placed there; 0, the default, is limited only
// by free space.
func FastTierIndexBytes(bytes int64) Option {
	return option(func(o *C.hw_options) { o.fast_index_bytes = C.uint64_t(max(bytes, 0)) })
}

// FastTierNewest bounds the copies of the newest partitions in a fast tier, if they are placed there: their maximum size and age. 0
// bytes, the default, are 32 times the memory budget, which is also the upper bound; an age below 0, the default, is no limit.
func FastTierNewest(bytes int64, age time.Duration) Option {
	return option(func(o *C.hw_options) {
		o.fast_newest_bytes = C.uint64_t(max(bytes, 0))
		o.fast_newest_age_ns = C.int64_t(age)
	})
}

// NamedSnapshots bounds named snapshots, which programs in Rust, SQL and the command make: their maximum age, 90 days by default,
// below 0 no limit; and the size of the files retained only for them, 64 GiB by default, 0 limited only by free space. Above either the
// oldest is dropped automatically.
func NamedSnapshots(age time.Duration, bytes int64) Option {
	return option(func(o *C.hw_options) {
		o.snapshot_age_max_ns = C.int64_t(age)
		o.snapshot_bytes_max = C.uint64_t(max(bytes, 0))
	})
}

// LogMirror is the interval at which the log in a fast tier is copied to the bulk device, at least 10 ms, which bounds the loss if the
// tier fails; below 0, the default, never.
func LogMirror(interval time.Duration) Option {
	return option(func(o *C.hw_options) { o.log_mirror_ns = C.int64_t(interval) })
}

// IOBackend sets how files are read and written: "file", the default, by blocking calls; "uring" likewise, with the read-ahead of scans
// through the kernel's io_uring where available.
func IOBackend(name string) Option {
	return func(c *config) { c.ioBackend = name }
}

// ReadAhead is the number of leaves that a scan reads ahead, where reads proceed in the background: with IOBackend("uring"), or with
// QueueSets. 1 to 64, default 8.
func ReadAhead(leaves int) Option {
	return option(func(o *C.hw_options) { o.read_ahead = C.uint32_t(min(max(leaves, 0), 1<<31)) })
}

// QueueSets sets the number of queue sets for segment files, each with a thread, which serve reads before flushes and flushes before
// compaction; 0, the default, is none. The placement assigns segments to sets: "load" or "interval"; empty is "load".
func QueueSets(sets int, placement string) Option {
	return func(c *config) {
		c.placement = placement
		option(func(o *C.hw_options) { o.queue_sets = C.uint32_t(min(max(sets, 0), 1<<31)) })(c)
	}
}

// LateRunsMax sets the maximum number of late runs a stream may have in a partition before they are folded, 0 to 1,024. Default 16.
func LateRunsMax(n int) Option {
	return option(func(o *C.hw_options) { o.late_runs_max = C.size_t(max(n, 0)) })
}

// BucketEvents sets the approximate number of events of a bucket of the pyramid's base level, 4 to 4,096. Default 128.
func BucketEvents(n int) Option {
	return option(func(o *C.hw_options) { o.bucket_events = C.uint32_t(min(max(n, 0), 1<<31)) })
}

// PartitionBytes sets the target size of a new partition, and the size above which one is split. Default 128 and 256 MiB.
func PartitionBytes(target, limit int64) Option {
	return option(func(o *C.hw_options) {
		o.partition_target_bytes = C.uint64_t(max(target, 0))
		o.partition_bytes_max = C.uint64_t(max(limit, 0))
	})
}

// GroupsMax sets with how many groups a partition is compacted, 2 and more. Default 256.
func GroupsMax(n int) Option {
	return option(func(o *C.hw_options) { o.groups_max = C.uint32_t(min(max(n, 0), 1<<31)) })
}

// OpenFilesMax sets the maximum number of segment files open at once. Default 256.
func OpenFilesMax(n int) Option {
	return option(func(o *C.hw_options) { o.open_files_max = C.uint32_t(min(max(n, 0), 1<<31)) })
}

// LogFileBytes is the target size of a commit log file; 0, the default, is derived from the memory budget.
func LogFileBytes(bytes int64) Option {
	return option(func(o *C.hw_options) { o.log_file_bytes = C.uint64_t(max(bytes, 0)) })
}

// MaxDefinitions bounds the tables, the fields of a table and its streams. Default 10,000, 1,024 and 10,000,000.
func MaxDefinitions(tables, fields, streams int) Option {
	return option(func(o *C.hw_options) {
		o.tables_max = C.size_t(max(tables, 0))
		o.fields_max = C.size_t(max(fields, 0))
		o.streams_max = C.size_t(max(streams, 0))
	})
}

// ClockJumpMax sets the forward jump of the clock above which it is distrusted for a while: retention, aging and expiry wait.
// Default 1 day.
func ClockJumpMax(jump time.Duration) Option {
	return option(func(o *C.hw_options) { o.clock_jump_max_ns = C.int64_t(jump) })
}

// ClockSettle sets the length of the intervals in which new rows must confirm a clock that jumped. Default 1 hour.
func ClockSettle(stretch time.Duration) Option {
	return option(func(o *C.hw_options) { o.clock_settle_ns = C.int64_t(stretch) })
}

// SnapshotAgeMax sets the age at which a named snapshot is dropped automatically; below 0 never. Default 90 days.
func SnapshotAgeMax(age time.Duration) Option {
	return option(func(o *C.hw_options) { o.snapshot_age_max_ns = C.int64_t(age) })
}

// SnapshotBytesMax is the maximum size of the files retained only for named snapshots; above it, the oldest is dropped. 0 is limited
// only by free space. Default 64 GiB.
func SnapshotBytesMax(bytes int64) Option {
	return option(func(o *C.hw_options) { o.snapshot_bytes_max = C.uint64_t(max(bytes, 0)) })
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
	options.fast_dir = pinned(&pinner, c.fastDir)
	options.fast_parts = pinned(&pinner, c.fastParts)
	options.io_backend = pinned(&pinner, c.ioBackend)
	options.queue_placement = pinned(&pinner, c.placement)
	var db C.hw_db
	if C.hw_open(text(dir), &options, &db, &e) != C.HW_OK {
		return 0, take(&e)
	}
	return db, nil
}
