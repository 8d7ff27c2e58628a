package headwater

import "time"

// Made from the table of stats of the engine; see crates/ffi/tests/it/stats.rs.

// Stats are counters and sizes of a database: sums since it was made, unless they say "since opening".
type Stats struct {
	// Events: Events stored or in memory; an event with several fields counts once.
	Events uint64 `json:"events"`
	// EventsInMemory: Events in memory, not yet in segments.
	EventsInMemory uint64 `json:"events_in_memory"`
	// LateEventsInMemory: Late events among those in memory.
	LateEventsInMemory uint64 `json:"late_events_in_memory"`
	// Streams: Streams.
	Streams uint64 `json:"streams"`
	// Tables: Tables.
	Tables uint64 `json:"tables"`
	// Partitions: Partitions.
	Partitions uint64 `json:"partitions"`
	// PartitionsUnreadable: Damaged partitions of which nothing can be read.
	PartitionsUnreadable uint64 `json:"partitions_unreadable"`
	// PartitionsFreed: Partitions whose rows were freed, because a cloud has them.
	PartitionsFreed uint64 `json:"partitions_freed"`
	// Leaves: Leaves of main runs.
	Leaves uint64 `json:"leaves"`
	// LateRuns: Late runs that wait to be merged.
	LateRuns uint64 `json:"late_runs"`
	// DiskBytes: Size of all files.
	DiskBytes uint64 `json:"disk_bytes"`
	// SegmentBytes: Size of segments.
	SegmentBytes uint64 `json:"segment_bytes"`
	// LogBytes: Size of log files, including those retained for recycling.
	LogBytes uint64 `json:"log_bytes"`
	// DeadBytes: Bytes of segments that nothing refers to.
	DeadBytes uint64 `json:"dead_bytes"`
	// FreedBytes: Bytes of rows that were freed, because a cloud has them.
	FreedBytes uint64 `json:"freed_bytes"`
	// BytesPerEvent: Bytes of segments per event in them.
	BytesPerEvent float64 `json:"bytes_per_event"`
	// FastBytes: Size of all files in the fast tier, included in the size of all files.
	FastBytes uint64 `json:"fast_bytes"`
	// FastBytesMax: Limit of the log in the fast tier; 0 = no limit.
	FastBytesMax uint64 `json:"fast_bytes_max"`
	// FastWrittenBytes: Bytes written to the fast tier, since opening.
	FastWrittenBytes uint64 `json:"fast_written_bytes"`
	// BulkWrittenBytes: Bytes written to all other media, since opening.
	BulkWrittenBytes uint64 `json:"bulk_written_bytes"`
	// LogMirrorBehindBytes: Bytes of the log in the fast tier not yet copied to the bulk device.
	LogMirrorBehindBytes uint64 `json:"log_mirror_behind_bytes"`
	// FastIndexBytes: Size of the copy of the index of segments in the fast tier.
	FastIndexBytes uint64 `json:"fast_index_bytes"`
	// FastIndexReads: Reads of segments that the index in the fast tier answered, since opening.
	FastIndexReads uint64 `json:"fast_index_reads"`
	// FastIndexDropped: Parts of the index in the fast tier that were invalid and dropped, since opening.
	FastIndexDropped uint64 `json:"fast_index_dropped"`
	// FastIndexRefused: Times that the fast tier had no room for more of the index, since opening.
	FastIndexRefused uint64 `json:"fast_index_refused"`
	// FastNewestBytes: Size of the copies of the newest segments in the fast tier.
	FastNewestBytes uint64 `json:"fast_newest_bytes"`
	// FastNewestSegments: Segments of which the fast tier has a copy.
	FastNewestSegments uint64 `json:"fast_newest_segments"`
	// FastNewestReads: Reads of segments that copies in the fast tier answered, since opening.
	FastNewestReads uint64 `json:"fast_newest_reads"`
	// FastNewestDropped: Copies of segments in the fast tier that were invalid and dropped, since opening.
	FastNewestDropped uint64 `json:"fast_newest_dropped"`
	// FastNewestRefused: Times that the fast tier had no room for more copies of segments, since opening.
	FastNewestRefused uint64 `json:"fast_newest_refused"`
	// Snapshots: Named snapshots.
	Snapshots uint64 `json:"snapshots"`
	// SnapshotBytes: Size of segments retained only for named snapshots.
	SnapshotBytes uint64 `json:"snapshot_bytes"`
	// SnapshotBytesMax: Limit of the size of segments retained only for named snapshots; 0 = no limit.
	SnapshotBytesMax uint64 `json:"snapshot_bytes_max"`
	// MemoryBytes: Memory that events occupy.
	MemoryBytes uint64 `json:"memory_bytes"`
	// PinnedBytes: Memory pinned only by open snapshots.
	PinnedBytes uint64 `json:"pinned_bytes"`
	// PinnedFileBytes: Size of files pinned only by open snapshots.
	PinnedFileBytes uint64 `json:"pinned_file_bytes"`
	// EventsAccepted: Events accepted.
	EventsAccepted uint64 `json:"events_accepted"`
	// BytesAccepted: Bytes accepted: 8 for a time or number, 1 for a boolean, the length of text.
	BytesAccepted uint64 `json:"bytes_accepted"`
	// EventsWritten: Events written to leaves, for any cause.
	EventsWritten uint64 `json:"events_written"`
	// EventsFlush: Events written by flushes in order.
	EventsFlush uint64 `json:"events_flush"`
	// EventsMerge: Events written by merges of late events.
	EventsMerge uint64 `json:"events_merge"`
	// EventsLateRun: Events written as late runs.
	EventsLateRun uint64 `json:"events_late_run"`
	// EventsFold: Events written by merges of late runs.
	EventsFold uint64 `json:"events_fold"`
	// EventsCompaction: Events written again by compaction.
	EventsCompaction uint64 `json:"events_compaction"`
	// EventsDelete: Events written by deletes of part of a leaf.
	EventsDelete uint64 `json:"events_delete"`
	// BytesLog: Bytes written to the log.
	BytesLog uint64 `json:"bytes_log"`
	// BytesLeaf: Bytes of leaves written.
	BytesLeaf uint64 `json:"bytes_leaf"`
	// BytesIndex: Bytes of blocks, indexes and footers written.
	BytesIndex uint64 `json:"bytes_index"`
	// BytesMeta: Bytes of metadata written.
	BytesMeta uint64 `json:"bytes_meta"`
	// WriteAmplification: Events written to leaves per event accepted.
	WriteAmplification float64 `json:"wa_events"`
	// WriteAmplificationBytes: Bytes written to media per byte accepted.
	WriteAmplificationBytes float64 `json:"wa_bytes"`
	// Flushes: Maintenance jobs that wrote rows to segments.
	Flushes uint64 `json:"flushes"`
	// Merges: Merges of late events, including merges of late runs.
	Merges uint64 `json:"merges"`
	// LogSyncs: Syncs of the log, since opening.
	LogSyncs uint64 `json:"log_syncs"`
	// LogSyncMedian: Median duration of the newest syncs of the log.
	LogSyncMedian time.Duration `json:"log_sync_median_ns"`
	// LeavesRead: Leaves read from files, since opening.
	LeavesRead uint64 `json:"leaves_read"`
	// PagesRead: Pages decoded, since opening.
	PagesRead uint64 `json:"pages_read"`
	// BlocksRead: Bucket blocks read from files, since opening.
	BlocksRead uint64 `json:"blocks_read"`
	// BytesRead: Bytes read from segments, since opening.
	BytesRead uint64 `json:"bytes_read"`
	// DamagedParts: Damaged leaves and blocks found, since opening.
	DamagedParts uint64 `json:"damaged_parts"`
}
