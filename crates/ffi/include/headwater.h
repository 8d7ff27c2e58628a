/* Headwater: an embedded database for events with timestamps. The C interface.
 *
 * Made by cbindgen from crates/ffi; do not edit. How to build and link, and examples: docs/embed/c.md.
 *
 * The contract of all functions
 *
 * - Results. A function returns HW_OK (0) or another code, and writes its results through pointers, always at the end of its
 *   arguments before `error`. A result is written only when the function returns HW_OK.
 * - Errors. `error` may be NULL; else it is the caller's, all zeros before its first use (hw_error error = {0};), and is written
 *   to only when the function fails. hw_error_free gives its message back. There is no state that belongs to a thread.
 * - Handles are numbers; 0 is none. A handle that was released, or is of another kind, is HW_HANDLE and never a crash: releasing
 *   twice, or using something after its release, is an error that is reported. Every handle ends with hw_release, a database's with
 *   hw_close.
 * - Threads. Any thread may use any handle at any time, also while another one releases it. Batches, scans and tickets serve one
 *   call at a time; the others wait.
 * - Who owns what. What is passed in belongs to the caller and need live only until the function returns; it is copied. What a
 *   result points to belongs to the library, must not be changed, and lives until the handle in the result is released. An empty
 *   list or text of a result is NULL.
 * - Text is a pointer and a length, in UTF-8, without a NUL. An array is a pointer and a count; NULL will do for a count of 0. A NULL
 *   where something is needed is HW_INVALID; a pointer that leads nowhere cannot be detected.
 * - Instants are nanoseconds since 1970-01-01T00:00:00Z, any int64_t; ranges include both ends.
 * - After fork, the child must not use handles of the parent: what writes, snapshots and hw_close are HW_FORKED there, and change
 *   nothing. It opens the database itself, when the parent does not have it open.
 */


#ifndef HEADWATER_H
#define HEADWATER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Fills in the defaults of an hw_options: hw_options_init with the size that this header says.
#define HW_OPTIONS_INIT(options, error) hw_options_init((options), sizeof(hw_options), (error))

// The Arrow C data interface and the Arrow C stream interface, as their specifications ask every header to declare them.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

#endif


// The call succeeded.
#define HW_OK 0

// The request itself is wrong: change it.
#define HW_INVALID 1

// There is no such database, table, stream or field.
#define HW_NOT_FOUND 2

// Too much at once: try again later.
#define HW_BUSY 3

// The database was closed, or stopped writing after a failed write: open it again.
#define HW_CLOSED 4

// Bytes on disk are not what was written: run `headwater check`.
#define HW_CORRUPT 5

// No space left: free some, or delete data.
#define HW_FULL 6

// The operating system refused.
#define HW_IO 7

// Another process owns the folder.
#define HW_LOCKED 8

// The database was opened read-only.
#define HW_READ_ONLY 9

// An internal error of Headwater.
#define HW_INTERNAL 10

// An internal error of Headwater that ended the call; the database goes on, or is closed.
#define HW_PANIC 11

// A handle that is 0, was released, or is of another kind than the function takes.
#define HW_HANDLE 12

// The database was opened by the process that this one was forked from: open it after the fork.
#define HW_FORKED 13

// The fast tier of the database is missing, or belongs to another database or an older state.
#define HW_TIER 14

// The object no longer exists, such as a named snapshot that was dropped automatically.
#define HW_GONE 15

// An acknowledged write is on the medium: it survives a power cut.
#define HW_SYNCED 0

// An acknowledged write was handed to the operating system, which is asked to store it every
// durability_interval_ns: it survives the end of the process; a power cut loses at most about this
// much time.
#define HW_EVERY 1

// An acknowledged write was handed to the operating system: it survives the end of the process,
// not a power cut.
#define HW_WRITTEN 2

// The version of this interface. The number rises when something is added; nothing is ever taken
// away or changed.
#define HW_ABI_VERSION 4

// Of equal timestamps the later write wins, field by field.
#define HW_DUPLICATES_LAST 1

// Rows of equal timestamps are all stored, in order of arrival.
#define HW_DUPLICATES_KEEP 2

// Rows live for ever: for retention_ns and raw_for_ns of hw_table.
#define HW_FOR_EVER -1

// Doubles: 8 bytes a row.
#define HW_F64 1

// Signed integers: 8 bytes a row.
#define HW_I64 2

// Unsigned integers: 8 bytes a row.
#define HW_U64 3

// Booleans: one byte a row, 0 or 1; what is not 0 is taken as true.
#define HW_BOOL 4

// UTF-8 text: offsets and bytes.
#define HW_STRING 5

// Bytes of any content: offsets and bytes.
#define HW_BYTES 6

// The value is equal to the one given.
#define HW_EQUAL 1

// Not equal; a NaN is not equal to anything.
#define HW_NOT_EQUAL 2

// Less than the value.
#define HW_LESS 3

// Less than the value, or equal.
#define HW_LESS_OR_EQUAL 4

// Greater than the value.
#define HW_GREATER 5

// Greater than the value, or equal.
#define HW_GREATER_OR_EQUAL 6

// One bin: the whole range.
#define HW_WHOLE 0

// Bins of equal width: width_ns, origin_ns.
#define HW_EVERY_WIDTH 1

// Buckets of a level of the pyramid, 2^level seconds wide: level.
#define HW_LEVEL 2

// A person must look: something failed for good.
#define HW_LOG_ERROR 1

// Something failed and is tried again, or was put right.
#define HW_LOG_WARN 2

// Events of normal operation, such as recovery.
#define HW_LOG_INFO 3

// The error of a call. Begin with one that is all zeros. A call that fails writes to it, one that
// succeeds does not. Give the message back with hw_error_free before the next call gets the same
// one.
typedef struct hw_error {
  // The code the call returned too.
  int32_t code;
  // Bytes of the message, without the NUL behind them.
  size_t length;
  // UTF-8, with a NUL behind it: what was expected, what was found, what to do. NULL = none.
  char *message;
} hw_error;

// Text: a pointer and a number of bytes. No NUL is needed, and one would be part of the text. NULL
// with length 0 is the empty text.
typedef struct hw_str {
  // UTF-8; bytes of any content where a function takes bytes, and for paths on Unix.
  const char *data;
  // The number of bytes.
  size_t length;
} hw_str;

// Settings of hw_open. Fill it in with hw_options_init, change what should differ.
typedef struct hw_options {
  // Bytes of this struct, as the caller was compiled: hw_options_init writes what it was given.
  size_t struct_size;
  // Read only: takes no lock, changes nothing, and works while another process owns the
  // database. Default 0.
  uint8_t read_only;
  // Refuse to make a new database. Default 0; a database that is opened read only must exist
  // anyway.
  uint8_t must_exist;
  // Shards of a new database, 1 to 64. Default: cores, at most 4.
  uint16_t shards;
  // HW_SYNCED (default), HW_EVERY or HW_WRITTEN.
  int32_t durability;
  // With HW_EVERY: interval of syncs, ns. Default 1 s.
  int64_t durability_interval_ns;
  // Memory for events not yet in segments, for caches and for flushes. Default 64 MiB.
  size_t memory_budget_bytes;
  // "adaptive" (default), "conventional", "separate:SHARE" …: see docs/operate/settings.md,
  // late.policy. Empty = the default.
  struct hw_str late_policy;
  // A late buffer that does not fill is merged after this time, ns; below 0 = never. Default 10
  // min.
  int64_t late_merge_interval_ns;
  // Maximum number of late runs of a stream in a partition. Default 16.
  size_t late_runs_max;
  // Events of a leaf in tables that do not set it. Default 2,048.
  uint32_t leaf_events;
  // Approximate number of events of a bucket of the base level. Default 128.
  uint32_t bucket_events;
  // A new partition is sized to close near this. Default 128 MiB.
  uint64_t partition_target_bytes;
  // A partition larger than this is split. Default 256 MiB.
  uint64_t partition_bytes_max;
  // A partition is compacted when its rows of a stream are spread over this many groups. Default
  // 256.
  uint32_t groups_max;
  // Maximum number of segment files open at once. Default 256.
  uint32_t open_files_max;
  // Maximum bytes that compaction writes per second; 0 = no limit (default).
  uint64_t compaction_bytes_per_second;
  // Maximum bytes that automatic compaction writes per day; 0 = no limit (default).
  uint64_t compaction_bytes_per_day;
  // Target size of log files; 0 = derived from the memory budget (default).
  uint64_t log_file_bytes;
  // Maximum time that a write waits for memory before it fails with HW_BUSY, ns. Default 5 s.
  int64_t busy_timeout_ns;
  // Maximum size of a batch. Default 16 MiB.
  size_t batch_bytes_max;
  // Maximum length of a string or byte value. Default 1 MiB.
  size_t string_bytes_max;
  // Maximum number of fields of a table. Default 1,024.
  size_t fields_max;
  // Maximum number of streams of a table. Default 10,000,000.
  size_t streams_max;
  // Events further in the future than this are refused, ns; below 0 = never (default).
  int64_t max_future_ns;
  // Maximum space reserved for a full disk; it grows with the log, from 1 MiB. Default 8 MiB.
  uint64_t reserve_bytes;
  // A forward jump of the clock by more than this is distrusted for a while, ns. Default 1 day.
  int64_t clock_jump_max_ns;
  // A clock that jumped is trusted again when new rows confirm it in several intervals of this
  // length, ns. Default 1 hour.
  int64_t clock_settle_ns;
  // Maximum number of tables. Default 10,000.
  size_t tables_max;
  // After this time without a write, ns, the events in memory are flushed and unneeded log files
  // are released; below 0 = never. Default 30 s.
  int64_t idle_after_ns;
  // Folder of a fast tier, on a small fast device: see docs/operate/tiers.md. Empty (default) =
  // the existing tier of the database, if any.
  struct hw_str fast_dir;
  // Parts of the database in the fast tier: "log", "pins", "index", "newest", or several with
  // commas between them. Empty = "log,pins".
  struct hw_str fast_parts;
  // Maximum size of the tier, shared by its parts; 0 (default) = the limits of each part.
  uint64_t fast_bytes;
  // Interval at which the log in a fast tier is copied to the bulk device, ns, which bounds the
  // loss if the tier fails; below 0 = never (default).
  int64_t log_mirror_ns;
  // Maximum size of the index of segments there; 0 (default) = limited only by free space.
  uint64_t fast_index_bytes;
  // Maximum size of the copies of the newest partitions there; 0 (default) = 32 times the memory
  // budget, which is also the upper bound.
  uint64_t fast_newest_bytes;
  // Copies of partitions older than this are dropped, ns; below 0 = by size alone (default).
  int64_t fast_newest_age_ns;
  // Named snapshots older than this are dropped automatically, ns; below 0 = never. Default 90
  // days.
  int64_t snapshot_age_max_ns;
  // Maximum size of the files retained only for named snapshots; above it, the oldest is
  // dropped. 0 = limited only by free space. Default 64 GiB.
  uint64_t snapshot_bytes_max;
  // I/O of files: "file" by blocking calls, or "uring" with read-ahead through
  // the kernel's io_uring. Empty = "file".
  struct hw_str io_backend;
  // Assignment of segments to queue sets: "load" or "interval". Empty = "load".
  struct hw_str queue_placement;
  // Number of leaves that a scan reads ahead. Default 8.
  uint32_t read_ahead;
  // Queue sets for segment files; 0 (default) = none.
  uint32_t queue_sets;
} hw_options;

// A database. To end with hw_close.
typedef uint64_t hw_db;

// Text that a call made. Release the handle when it has been read.
typedef struct hw_text {
  // To release.
  uint64_t handle;
  // The text, until then.
  struct hw_str text;
} hw_text;

// A field to declare.
typedef struct hw_field {
  // Its name.
  struct hw_str name;
  // HW_F64 …
  int32_t value_type;
} hw_field;

// A table to declare, or changes to one. All zeros = the defaults, or no change.
typedef struct hw_table {
  // HW_DUPLICATES_LAST or HW_DUPLICATES_KEEP; 0 = the default, which is HW_DUPLICATES_LAST, or
  // no change. A change is possible only before the first write.
  int32_t duplicates;
  // Events of a full leaf, 16 to 65,536; 0 = the database's default, or no change.
  uint32_t leaf_events;
  // Rows older than this are removed, ns; HW_FOR_EVER; 0 = for ever, or no change.
  int64_t retention_ns;
  // Rows older than this are removed and leave their aggregates, ns; HW_FOR_EVER; 0 = for ever,
  // or no change.
  int64_t raw_for_ns;
  // Fields to declare, or to add; a field of HW_I64 may be given as HW_F64, which widens it.
  // More fields may come with writes.
  const struct hw_field *fields;
  // Their number.
  size_t field_count;
} hw_table;

// A tag: key and value.
typedef struct hw_tag {
  // The key.
  struct hw_str key;
  // The value.
  struct hw_str value;
} hw_tag;

// A stream: a table and tags, to write to and to read. To end with hw_release.
typedef uint64_t hw_stream;

// A snapshot: everything acknowledged before it was taken, for any number of reads. Files and
// memory stay in use while it lives, so hold it for a query and not for a day. To end with
// hw_release. Where a function takes one, 0 = a new one for this call.
typedef uint64_t hw_snapshot;

// Contents of a stream.
typedef struct hw_stream_info {
  // Its rows. While rewritten rows or deletes wait to be merged it counts what they replace or
  // remove too.
  uint64_t rows;
  // 0 = it holds nothing, and the instants mean nothing.
  uint8_t has_events;
  // Its earliest event, ns since 1970.
  int64_t first_ns;
  // Its latest event, ns since 1970.
  int64_t last_ns;
} hw_stream_info;

// Name of a stream.
typedef struct hw_stream_name {
  // "table,tag=value", with a backslash before commas, blanks, equals signs and backslashes in
  // names.
  struct hw_str text;
  // The table.
  struct hw_str table;
  // The tags, sorted by key.
  const struct hw_tag *tags;
  // Their number.
  size_t tag_count;
} hw_stream_name;

// Streams by name. Release the handle when they have been read.
typedef struct hw_streams {
  // To release.
  uint64_t handle;
  // The names, until then.
  const struct hw_stream_name *streams;
  // Their number.
  size_t count;
} hw_streams;

// A batch to fill and to write. To end with hw_release.
typedef uint64_t hw_batch;

// The values of a field, one for each row of its rows.
typedef struct hw_column {
  // The field.
  struct hw_str name;
  // HW_F64 …
  int32_t value_type;
  // Rows without a value. Not looked at in columns to write.
  size_t absent_count;
  // A bit for each row, the lowest of the first byte first: 1 = there is a value. NULL = every
  // row has one.
  const uint8_t *validity;
  // HW_F64, HW_I64, HW_U64: 8 bytes a row; HW_BOOL: 1 byte a row. Else NULL. The values of
  // absent rows mean nothing.
  const void *values;
  // HW_STRING, HW_BYTES: rows + 1 numbers; row i is the bytes from number i to number i + 1.
  // Else NULL.
  const uint32_t *offsets;
  // HW_STRING, HW_BYTES: the bytes of all rows. Else NULL.
  const uint8_t *bytes;
} hw_column;

// One value.
typedef struct hw_value {
  // HW_F64 …: says which of the following counts. 0 = no value.
  int32_t value_type;
  // HW_BOOL: 0 or 1.
  uint8_t boolean;
  // The value of HW_F64.
  double f64;
  // The value of HW_I64.
  int64_t i64;
  // The value of HW_U64.
  uint64_t u64;
  // HW_STRING, HW_BYTES.
  struct hw_str text;
} hw_value;

// A value and its field.
typedef struct hw_field_value {
  // The field.
  struct hw_str field;
  // The value.
  struct hw_value value;
} hw_field_value;

// A row that was not stored, and why.
typedef struct hw_refused {
  // Which part of the batch, from 0: each hw_batch_rows begins one, and so does hw_batch_row for
  // a stream that has none yet.
  size_t part;
  // Which row of the part, from 0.
  size_t row;
  // Stable: "E_TYPE", "E_TIME_FUTURE", …; see docs/http/writing.md.
  struct hw_str code;
  // The message: what was expected, what was found, what to do.
  struct hw_str message;
} hw_refused;

// Result of a write. Release the handle if it is not 0.
typedef struct hw_written {
  // To release when rows were refused; else 0.
  uint64_t handle;
  // Rows stored.
  uint64_t accepted;
  // Rows not stored, until the handle is released.
  const struct hw_refused *refused;
  // Their number.
  size_t refused_count;
  // 1 = the batch was numbered by its producer and had been stored before: nothing was stored
  // again.
  uint8_t repeated;
  // Of the rows stored, those that put a value where another row of the same batch, before them,
  // had put one: the batch named the same stream and time more than once.
  uint32_t replaced;
} hw_written;

// A write on its way. The handle ends with hw_ticket_wait, or with hw_release when nobody waits;
// the write goes on all the same.
typedef uint64_t hw_ticket;

// A condition on one field. Rows without a value in it never match.
typedef struct hw_filter {
  // The field.
  struct hw_str field;
  // HW_EQUAL …
  int32_t comparison;
  // The value to compare with, of the field's type; an integer is taken for a field of doubles
  // too.
  struct hw_value value;
} hw_filter;

// A prepared query. To end with hw_release.
typedef uint64_t hw_query;

// Rows of one stream, by time; of equal times by arrival. Release the handle when they have been
// read.
typedef struct hw_rows {
  // To release. 0 = a scan is at its end; the rest is zeros then.
  uint64_t handle;
  // The number of rows.
  size_t row_count;
  // Their times, ns since 1970.
  const int64_t *times_ns;
  // Columns: those asked for, in that order.
  size_t column_count;
  // Each with row_count rows.
  const struct hw_column *columns;
  // The stream of the rows.
  struct hw_stream_name stream;
} hw_rows;

// A scan that gives its rows some at a time, in bounded memory. To end with hw_release.
typedef uint64_t hw_scan;

// Names a row of a replay, to go on behind it later: in the same snapshot, or in a later one,
// which does not show what has come before it since.
typedef struct hw_replay_cursor {
  // The row's time.
  int64_t time_ns;
  // Which of the rows of its stream and time it is, from 1 on: numbers of hw_replay_rows.
  uint64_t number;
  // Its stream, as "table,tag=value,…".
  struct hw_str stream;
} hw_replay_cursor;

// A replay: the rows of the streams of a table, by time. To end with hw_release.
typedef uint64_t hw_replay;

// Rows of a replay. Release the handle when they have been read.
typedef struct hw_replay_rows {
  // To release. 0 = the replay is at its end; the rest is zeros then.
  uint64_t handle;
  // The number of rows.
  size_t row_count;
  // Their times, ns since 1970, rising.
  const int64_t *times_ns;
  // For each row the index of its stream in streams.
  const uint32_t *places;
  // For each row which of the rows of its stream and time it is, from 1 on.
  const uint64_t *numbers;
  // Columns: those asked for, in that order.
  size_t column_count;
  // Each with row_count rows.
  const struct hw_column *columns;
  // Streams of these rows.
  size_t stream_count;
  // Their names, each once.
  const struct hw_stream_name *streams;
} hw_replay_rows;

// The newest value of a field.
typedef struct hw_last_value {
  // Which stream, by its index in the list of streams.
  size_t stream;
  // The field.
  struct hw_str field;
  // When, ns since 1970.
  int64_t time_ns;
  // The value itself.
  struct hw_value value;
} hw_last_value;

// The newest values of streams: for each stream and field at most one. Release the handle when
// they have been read.
typedef struct hw_last_values {
  // To release.
  uint64_t handle;
  // The number of values.
  size_t count;
  // The values, stream by stream.
  const struct hw_last_value *values;
  // The number of streams.
  size_t stream_count;
  // Their names.
  const struct hw_stream_name *streams;
} hw_last_values;

// A bin with at least one value.
typedef struct hw_bin {
  // Its first instant, or that of the range if that is later, ns since 1970.
  int64_t start_ns;
  // Tiles: the number of the bucket, which begins at bucket * 2^level s. Else 0.
  int64_t bucket;
  // Values, those that are not finite included.
  uint64_t count;
  // Values that are NaN.
  uint64_t nan_count;
  // Values that are +Inf.
  uint64_t positive_infinite_count;
  // Values that are -Inf.
  uint64_t negative_infinite_count;
  // Mean time of the values, rounded down.
  int64_t mean_time_ns;
  // Mean of the finite values; NaN without one, and for text.
  double mean;
  // Their population standard deviation; NaN without one.
  double stddev;
  // Their sum of squared differences from the mean.
  double m2;
  // Smallest finite value, as a double; NaN without one.
  double min;
  // Largest finite value, as a double; NaN without one.
  double max;
  // Type of the exact extremes: HW_F64, HW_I64 (booleans are 0 and 1) or HW_U64; 0 = there are
  // none.
  int32_t extremes_type;
  // The 64 bits of the smallest value, of that type.
  uint64_t min_bits;
  // The 64 bits of the largest value, of that type.
  uint64_t max_bits;
  // Exact sum of integers and booleans: the low 64 bits; 0 for other types.
  uint64_t sum_low;
  // The high 64 bits of the same sum, with its sign.
  int64_t sum_high;
} hw_bin;

// Fields and bins of an aggregation.
typedef struct hw_aggregate_spec {
  // The first instant, ns since 1970, included.
  int64_t first_ns;
  // The last instant, included.
  int64_t last_ns;
  // HW_WHOLE, HW_EVERY_WIDTH or HW_LEVEL.
  int32_t bins;
  // HW_LEVEL: -20 to 40.
  int32_t level;
  // HW_EVERY_WIDTH: above 0.
  int64_t width_ns;
  // HW_EVERY_WIDTH: an instant at which a bin begins.
  int64_t origin_ns;
  // 1 = give the first and the last value of each bin too, which reads every row of the range.
  uint8_t first_last;
} hw_aggregate_spec;

// The first or the last value of a bin.
typedef struct hw_bin_end {
  // When, ns since 1970.
  int64_t time_ns;
  // The value; type 0 = only aggregates are stored there.
  struct hw_value value;
} hw_bin_end;

// Bins in the order of time; those without a value are left out. Release the handle when they have
// been read.
typedef struct hw_bins {
  // To release.
  uint64_t handle;
  // The number of bins.
  size_t count;
  // The bins.
  const struct hw_bin *bins;
  // The first value of each, if asked for; else NULL.
  const struct hw_bin_end *firsts;
  // The last value of each, if asked for; else NULL.
  const struct hw_bin_end *lasts;
} hw_bins;

// Receives an event of the engine: a level and a text, which is valid during the call. The
// function must return soon, and must not call the library.
typedef void (*hw_log_fn)(void *user, int32_t level, struct hw_str message);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Gives the message of an error back and makes the error all zeros. NULL, and an error without a
// message, are fine, so that freeing twice is harmless.
void hw_error_free(struct hw_error *error);

// Names a code: "ok", "invalid", "not_found", … The text is valid for ever and has a NUL behind
// it. NULL for a number that is no code.
const char *hw_code_name(int32_t code);

// Does nothing, successfully: to measure what crossing the border costs.
int32_t hw_nothing(void);

// Releases a handle of any kind but a database's, which hw_close takes, and what its result points
// to. Calls that other threads have begun with it end well. A handle that was released already is
// HW_HANDLE, never a crash.
int32_t hw_release(uint64_t handle, struct hw_error *error);

// Handles that were given out and not released, databases included: for tests of leaks.
uint64_t hw_handle_count(void);

// Fills in the defaults. struct_size is sizeof(hw_options): the header has a macro,
// HW_OPTIONS_INIT, that gives it.
int32_t hw_options_init(struct hw_options *options, size_t struct_size, struct hw_error *error);

// The library's version, as "0.1.0"; valid for ever.
struct hw_str hw_version(void);

// HW_ABI_VERSION of the library, to compare with that of the header: the library's must not be
// smaller.
uint32_t hw_abi_version(void);

// Opens the database in a folder, or makes it; recovers it if it was not closed. options NULL =
// the defaults. One process owns a database; others open it read only.
//
// HW_LOCKED when another process owns it, HW_NOT_FOUND without one where one must exist,
// HW_CORRUPT, HW_INVALID, HW_FULL, HW_IO.
int32_t hw_open(struct hw_str path, const struct hw_options *options, hw_db *db, struct hw_error *error);

// Stores what is in memory, closes the database and ends its handle, also when it fails: what was
// acknowledged is in the log then, and comes back at the next opening. Snapshots and scans stay
// readable, and the folder is locked until the last of them is released. Calls with streams and
// queries of the database are HW_CLOSED from now on.
int32_t hw_close(hw_db db, struct hw_error *error);

// Of a database that was opened read only: looks again, so that what is read from now on is as its
// owner has it now. One that was not always sees its newest state; nothing happens.
int32_t hw_refresh(hw_db db, struct hw_error *error);

// Stores every event in memory in segments.
int32_t hw_flush(hw_db db, struct hw_error *error);

// Stores every event in memory, then rewrites every partition that would become smaller or tidier.
int32_t hw_compact(hw_db db, struct hw_error *error);

// Counters and sizes, as JSON.
int32_t hw_stats(hw_db db, struct hw_text *text, struct hw_error *error);

// Statistics of late events and the policy decided from them, as JSON.
int32_t hw_late(hw_db db, struct hw_text *text, struct hw_error *error);

// Changes the source of the policy for late data, until the database is closed: "adaptive",
// "separate:0.5", … as in hw_options.
int32_t hw_set_late_policy(hw_db db, struct hw_str policy, struct hw_error *error);

// Reads every byte of the database and compares checksums, order and aggregates, while it is in
// use. The report is JSON; is_sound gets 1, or 0 when something is damaged, which is not an error
// of the call.
int32_t hw_check(hw_db db, uint8_t *is_sound, struct hw_text *report, struct hw_error *error);

// Backs the database up into a folder, while it is in use: one state of it, with everything
// acknowledged before this call. Into a folder with an older backup of the same database only what
// is new is copied. The report is JSON; report NULL = no report.
int32_t hw_backup(hw_db db, struct hw_str folder, struct hw_text *report, struct hw_error *error);

// Checks a backup: the checksum of every file, and all that hw_check checks of a database. As
// there.
int32_t hw_verify_backup(struct hw_str folder, uint8_t *is_sound, struct hw_text *report, struct hw_error *error);

// Makes a database of a backup, in a folder that is empty or not there, and checks all of it. The
// report is JSON; report NULL = no report.
int32_t hw_restore(struct hw_str backup_folder,
                   struct hw_str path,
                   uint8_t *is_sound,
                   struct hw_text *report,
                   struct hw_error *error);

// Repairs the database in a folder, which must not be open. Readable data stay, damaged files are
// copied to a folder `quarantine` in it before anything is changed, and the report, as JSON, says
// what is lost. dry_run 1 = change nothing.
int32_t hw_repair(struct hw_str path, uint8_t dry_run, struct hw_text *report, struct hw_error *error);

// Checks a handle of a database: HW_OK while it is open. The check does nothing else, so that its
// time is the cost of a call with a handle.
int32_t hw_is_open(hw_db db, struct hw_error *error);

// Declares a table. spec NULL = with the defaults. Writing to a table that is not there makes one
// too. HW_INVALID when there is one.
int32_t hw_table_create(hw_db db, struct hw_str name, const struct hw_table *spec, struct hw_error *error);

// Changes a table; what is stored stays as it is. HW_NOT_FOUND without one.
int32_t hw_table_alter(hw_db db, struct hw_str name, const struct hw_table *change, struct hw_error *error);

// Drops a table with all its streams and events.
int32_t hw_table_drop(hw_db db, struct hw_str name, struct hw_error *error);

// The tables, as a JSON list.
int32_t hw_tables(hw_db db, struct hw_text *text, struct hw_error *error);

// Deletes the events from first_ns to last_ns, both included, of the streams of a table that have
// these tags; no tags = all of them. Only events written before this call are deleted: later
// writes stay. stream_count gets the number of streams concerned; NULL = not returned.
int32_t hw_delete(hw_db db,
                  struct hw_str table,
                  const struct hw_tag *tags,
                  size_t tag_count,
                  int64_t first_ns,
                  int64_t last_ns,
                  uint64_t *stream_count,
                  struct hw_error *error);

// Drops the streams of a table that have these tags, at least one tag, with all their events.
// stream_count gets their number; NULL = not returned.
int32_t hw_drop_streams(hw_db db,
                        struct hw_str table,
                        const struct hw_tag *tags,
                        size_t tag_count,
                        uint64_t *stream_count,
                        struct hw_error *error);

// A stream of a table with these tags, in any order. Nothing is read from the database: a stream
// that is not there comes into being with the first write to it.
int32_t hw_stream_open(hw_db db,
                       struct hw_str table,
                       const struct hw_tag *tags,
                       size_t tag_count,
                       hw_stream *stream,
                       struct hw_error *error);

// As hw_stream_open, by a name "table,tag=value,…"; a backslash keeps the character behind it.
int32_t hw_stream_parse(hw_db db, struct hw_str name, hw_stream *stream, struct hw_error *error);

// Describes the contents of a stream, without reading its rows. snapshot 0 = as it is now.
// HW_NOT_FOUND while nothing was written to it.
int32_t hw_stream_describe(hw_stream stream, hw_snapshot snapshot, struct hw_stream_info *info, struct hw_error *error);

// The streams of a table that have these tags; no tags = all of them. At most `limit` behind
// `after`, in the order of the catalog; `after` is the name of a stream, or empty for the first.
// snapshot 0 = as it is now.
int32_t hw_streams_list(hw_db db,
                        hw_snapshot snapshot,
                        struct hw_str table,
                        const struct hw_tag *tags,
                        size_t tag_count,
                        struct hw_str after,
                        size_t limit,
                        struct hw_streams *streams,
                        struct hw_error *error);

// A snapshot of everything acknowledged so far; of a database opened read only: as it was looked
// at last.
int32_t hw_snapshot_open(hw_db db, hw_snapshot *snapshot, struct hw_error *error);

// The number of the newest record that a snapshot sees: it rises with every write.
int32_t hw_snapshot_sequence(hw_snapshot snapshot, uint64_t *sequence, struct hw_error *error);

// Stores what memory holds and keeps the state of now under a name: it can be read until it is
// dropped or ends by itself (hw_options.snapshot_age_max_ns, snapshot_bytes_max, a full disk).
// text gets what it is as JSON, as in hw_snapshots; NULL = not returned. HW_INVALID for a bad
// name, one that is taken, "now", and beyond 64 snapshots.
int32_t hw_snapshot_create(hw_db db, struct hw_str name, struct hw_text *text, struct hw_error *error);

// Drops the named snapshot; its files go when nobody reads them any more. HW_NOT_FOUND without it.
int32_t hw_snapshot_drop(hw_db db, struct hw_str name, struct hw_error *error);

// The named snapshots as JSON: {"snapshots":[…],"ended":[…]}, each list with the oldest first. The
// ones under "ended" ended by themselves, with the reason. Of a database opened read only: as of
// the last look at it.
int32_t hw_snapshots(hw_db db, struct hw_text *text, struct hw_error *error);

// The state that a named snapshot keeps, to be read as any other snapshot. To end with hw_release,
// which does not drop it. HW_NOT_FOUND without it, HW_GONE when it ended by itself.
int32_t hw_snapshot_named(hw_db db, struct hw_str name, hw_snapshot *snapshot, struct hw_error *error);

// An empty batch.
int32_t hw_batch_new(hw_batch *batch, struct hw_error *error);

// Another batch with the same content, for instance to write it again when that was HW_BUSY.
int32_t hw_batch_copy(hw_batch batch, hw_batch *copy, struct hw_error *error);

// Makes a batch empty, without producer and expiry.
int32_t hw_batch_clear(hw_batch batch, struct hw_error *error);

// Begins rows of a stream: their times, ns since 1970, in any order. Columns that are added next
// are of these rows; a field without a column is absent in all of them. The rows of one stream may
// come in several parts.
int32_t hw_batch_rows(hw_batch batch,
                      hw_stream stream,
                      const int64_t *times_ns,
                      size_t row_count,
                      struct hw_error *error);

// Adds a column of any type to the rows begun last; it has as many rows as they.
int32_t hw_batch_column(hw_batch batch, const struct hw_column *column, struct hw_error *error);

// Adds a column of doubles to the rows begun last; validity as in hw_column, NULL = every row has
// a value.
int32_t hw_batch_f64(hw_batch batch,
                     struct hw_str field,
                     const double *values,
                     const uint8_t *validity,
                     struct hw_error *error);

// As hw_batch_f64, of signed integers.
int32_t hw_batch_i64(hw_batch batch,
                     struct hw_str field,
                     const int64_t *values,
                     const uint8_t *validity,
                     struct hw_error *error);

// As hw_batch_f64, of unsigned integers.
int32_t hw_batch_u64(hw_batch batch,
                     struct hw_str field,
                     const uint64_t *values,
                     const uint8_t *validity,
                     struct hw_error *error);

// As hw_batch_f64, of booleans: a byte a row.
int32_t hw_batch_bool(hw_batch batch,
                      struct hw_str field,
                      const uint8_t *values,
                      const uint8_t *validity,
                      struct hw_error *error);

// Adds a column of text: offsets and bytes as in hw_column. value_type is HW_STRING or HW_BYTES.
int32_t hw_batch_text(hw_batch batch,
                      struct hw_str field,
                      int32_t value_type,
                      const uint32_t *offsets,
                      const uint8_t *bytes,
                      const uint8_t *validity,
                      struct hw_error *error);

// Adds one row of a stream: for programs that have their events one by one. HW_INVALID when a
// field has values of another type in this batch; the row is not added then.
int32_t hw_batch_row(hw_batch batch,
                     hw_stream stream,
                     int64_t time_ns,
                     const struct hw_field_value *values,
                     size_t value_count,
                     struct hw_error *error);

// Lets every value of the batch end at an instant, ns since 1970: from then on no reader finds it.
int32_t hw_batch_expire_at(hw_batch batch, int64_t at_ns, struct hw_error *error);

// Numbers the batch, so that writing it again after an error or a restart stores it once: the
// numbers of a producer rise from batch to batch, and one number has one content. The name is 1 to
// 255 bytes.
int32_t hw_batch_set_producer(hw_batch batch, struct hw_str name, uint64_t number, struct hw_error *error);

// Lets the batch be stored only as a whole: when a row is refused, none is stored.
int32_t hw_batch_require_all(hw_batch batch, struct hw_error *error);

// Writes a batch and waits until it is stored as durably as the database was opened with. Rows
// that do not fit are refused one by one, the others are stored; with written NULL, refused rows
// are HW_INVALID instead, though the others are stored. The batch is empty then, whatever happens,
// and may be filled again.
//
// HW_BUSY when memory stays used up, HW_FULL, HW_CLOSED, HW_INVALID when the batch is too large:
// nothing of it is stored then. HW_IO when the log could not be written: the rows may or may not
// be there after the next opening.
int32_t hw_write(hw_db db, hw_batch batch, struct hw_written *written, struct hw_error *error);

// Writes rows of one stream and waits, as hw_write, without a batch: times and columns of as many
// rows.
int32_t hw_write_columns(hw_stream stream,
                         const int64_t *times_ns,
                         size_t row_count,
                         const struct hw_column *columns,
                         size_t column_count,
                         struct hw_written *written,
                         struct hw_error *error);

// Hands a batch in without waiting, so that a writer may have several on their way; it may wait
// for memory. The batch is empty then. Errors as hw_write, up to that point.
int32_t hw_submit(hw_db db, hw_batch batch, hw_ticket *ticket, struct hw_error *error);

// Waits until a write is stored, at most timeout_ns; below 0 = as long as it takes. done gets 1,
// and the ticket ends; or 0 after the time, and it may be waited for again. On an error the ticket
// ends too: the rows may or may not be stored then. written as in hw_write.
int32_t hw_ticket_wait(hw_ticket ticket,
                       int64_t timeout_ns,
                       uint8_t *done,
                       struct hw_written *written,
                       struct hw_error *error);

// A query for rows of one stream: these fields in this order (none = all, in the order they were
// added), of rows for which all filters hold. The database is read when the query runs.
int32_t hw_query_stream(hw_stream stream,
                        const struct hw_str *fields,
                        size_t field_count,
                        const struct hw_filter *filters,
                        size_t filter_count,
                        hw_query *query,
                        struct hw_error *error);

// As hw_query_stream, for the streams of a table that have these tags; no tags = all of them. A
// key that comes several times may have any of its values. For hw_scan_open and hw_replay_open.
int32_t hw_query_table(hw_db db,
                       struct hw_str table,
                       const struct hw_tag *tags,
                       size_t tag_count,
                       const struct hw_str *fields,
                       size_t field_count,
                       const struct hw_filter *filters,
                       size_t filter_count,
                       hw_query *query,
                       struct hw_error *error);

// All rows of a query for one stream, from first_ns to last_ns, both included (INT64_MIN and
// INT64_MAX = all). snapshot 0 = as it is now. HW_NOT_FOUND while nothing was written to the
// stream, or for an unknown field.
int32_t hw_read(hw_query query,
                hw_snapshot snapshot,
                int64_t first_ns,
                int64_t last_ns,
                struct hw_rows *rows,
                struct hw_error *error);

// Begins a scan of a query, from first_ns to last_ns, both included. The streams of a table come
// one after the other, in the order of the catalog. snapshot 0 = as it is now; the scan keeps what
// it reads, the snapshot may be released.
int32_t hw_scan_open(hw_query query,
                     hw_snapshot snapshot,
                     int64_t first_ns,
                     int64_t last_ns,
                     hw_scan *scan,
                     struct hw_error *error);

// The next rows of a scan, at least one; at its end rows->handle is 0. HW_CORRUPT for a damaged
// part: the next call goes on behind it.
int32_t hw_scan_next(hw_scan scan, struct hw_rows *rows, struct hw_error *error);

// hw_scan_open and the first hw_scan_next in one call, for reads that are mostly small: rows gets
// the first rows, and scan the scan to go on with, or 0 when these were all; rows->handle is 0
// when there are none.
int32_t hw_scan_begin(hw_query query,
                      hw_snapshot snapshot,
                      int64_t first_ns,
                      int64_t last_ns,
                      struct hw_rows *rows,
                      hw_scan *scan,
                      struct hw_error *error);

// Begins a replay of a query for a table (hw_query_table), from first_ns to last_ns, both
// included: the rows of all its streams as one sequence by time; of equal times by stream, in the
// order of hw_streams_list, and of one stream by arrival. after = the row to go on behind; NULL =
// from the first one on. memory_bytes bounds the rows in memory at once; 0 = a share of the
// quarter of memory_budget_bytes that all replays have together. snapshot 0 = as it is now; the
// replay keeps what it reads, the snapshot may be released.
int32_t hw_replay_open(hw_query query,
                       hw_snapshot snapshot,
                       int64_t first_ns,
                       int64_t last_ns,
                       const struct hw_replay_cursor *after,
                       size_t memory_bytes,
                       hw_replay *replay,
                       struct hw_error *error);

// The next rows of a replay, at least one; at its end rows->handle is 0. An error ends it.
int32_t hw_replay_next(hw_replay replay, struct hw_replay_rows *rows, struct hw_error *error);

// The times and values of a query for one field of one stream, copied to the caller's memory; rows
// without a value are left out. row_count gets the number of rows there are: when that is more
// than capacity, the first of them were copied; call again with memory for all, or from the last
// time on. HW_INVALID when the field is of another type.
int32_t hw_read_f64(hw_query query,
                    hw_snapshot snapshot,
                    int64_t first_ns,
                    int64_t last_ns,
                    int64_t *times_ns,
                    double *values,
                    size_t capacity,
                    size_t *row_count,
                    struct hw_error *error);

// As hw_read_f64, of signed integers.
int32_t hw_read_i64(hw_query query,
                    hw_snapshot snapshot,
                    int64_t first_ns,
                    int64_t last_ns,
                    int64_t *times_ns,
                    int64_t *values,
                    size_t capacity,
                    size_t *row_count,
                    struct hw_error *error);

// As hw_read_f64, of unsigned integers.
int32_t hw_read_u64(hw_query query,
                    hw_snapshot snapshot,
                    int64_t first_ns,
                    int64_t last_ns,
                    int64_t *times_ns,
                    uint64_t *values,
                    size_t capacity,
                    size_t *row_count,
                    struct hw_error *error);

// As hw_read_f64 for each of many queries of one database, all in one snapshot. The rows of a
// query stand behind those of the one before; row_counts gets the number of rows that there are of
// each. When their sum is more than capacity, the first of them all were copied: call again with
// memory for all.
int32_t hw_read_many_f64(const hw_query *queries,
                         size_t query_count,
                         hw_snapshot snapshot,
                         int64_t first_ns,
                         int64_t last_ns,
                         int64_t *times_ns,
                         double *values,
                         size_t capacity,
                         size_t *row_counts,
                         struct hw_error *error);

// As hw_read_many_f64, of signed integers.
int32_t hw_read_many_i64(const hw_query *queries,
                         size_t query_count,
                         hw_snapshot snapshot,
                         int64_t first_ns,
                         int64_t last_ns,
                         int64_t *times_ns,
                         int64_t *values,
                         size_t capacity,
                         size_t *row_counts,
                         struct hw_error *error);

// As hw_read_many_f64, of unsigned integers.
int32_t hw_read_many_u64(const hw_query *queries,
                         size_t query_count,
                         hw_snapshot snapshot,
                         int64_t first_ns,
                         int64_t last_ns,
                         int64_t *times_ns,
                         uint64_t *values,
                         size_t capacity,
                         size_t *row_counts,
                         struct hw_error *error);

// The newest value of each field of a stream; fields without any are left out. snapshot 0 = as it
// is now. HW_NOT_FOUND while nothing was written to it.
int32_t hw_last(hw_stream stream, hw_snapshot snapshot, struct hw_last_values *values, struct hw_error *error);

// As hw_last, for all streams of a table that have these tags; no tags = all of them.
int32_t hw_last_table(hw_db db,
                      hw_snapshot snapshot,
                      struct hw_str table,
                      const struct hw_tag *tags,
                      size_t tag_count,
                      struct hw_last_values *values,
                      struct hw_error *error);

// The sum of the finite values of a bin as a double; NaN without one, for text, and for NULL.
// sum_low and sum_high give that of integers and booleans with all its digits.
double hw_bin_sum(const struct hw_bin *bin);

// The largest finite value of a bin minus the smallest; NaN without one, for text, and for NULL.
double hw_bin_spread(const struct hw_bin *bin);

// The standard deviation of the finite values of a bin as a sample; NaN of fewer than two, for
// text, and for NULL.
double hw_bin_sample_stddev(const struct hw_bin *bin);

// Aggregates of one field over a range, whole or in bins. snapshot 0 = as it is now. HW_NOT_FOUND
// for an unknown stream or field.
int32_t hw_aggregate(hw_stream stream,
                     hw_snapshot snapshot,
                     struct hw_str field,
                     const struct hw_aggregate_spec *spec,
                     struct hw_bins *bins,
                     struct hw_error *error);

// The filled buckets of a tile of one field: tile `offset` of a level holds buckets offset * 512
// to offset * 512 + 511, each 2^level s wide, counted from 1970. A tile outside of the range of
// instants is empty. snapshot 0 = as it is now.
int32_t hw_tile(hw_stream stream,
                hw_snapshot snapshot,
                struct hw_str field,
                int32_t level,
                int64_t offset,
                struct hw_bins *bins,
                struct hw_error *error);

// Rows as Arrow: a struct array with the times as `time` (timestamp[ns, UTC]) and then the fields.
// Schema and array are the caller's to release, by their callbacks, and stay valid when the handle
// of the rows is released; nothing but booleans is copied.
int32_t hw_rows_arrow(uint64_t rows, struct ArrowSchema *schema, struct ArrowArray *array, struct hw_error *error);

// Adds rows of a stream from Arrow: a struct array (a record batch) with a column of times of this
// name (timestamps of any unit, or 64-bit integers in ns since 1970), and a field in every other
// column. Everything is copied; schema and array stay the caller's.
int32_t hw_batch_arrow(hw_batch batch,
                       hw_stream stream,
                       struct hw_str time_column,
                       const struct ArrowSchema *schema,
                       const struct ArrowArray *array,
                       struct hw_error *error);

// A scan as a stream of Arrow arrays: struct arrays with the times as `time`, of a scan over the
// streams of a table then a column of text for each tag key of the table, and then the fields. The
// stream is the caller's to release by its callback; the handle of the scan may be released
// before.
int32_t hw_scan_arrow(hw_scan scan, struct ArrowArrayStream *stream, struct hw_error *error);

// Sets the receiver of the engine's events beside the results of calls, up to a level:
// HW_LOG_ERROR, HW_LOG_WARN or HW_LOG_INFO. There is one receiver for all databases of the
// process; receiver NULL = nobody. user is handed on to it as it is.
int32_t hw_log_to(hw_log_fn receiver, void *user, int32_t level_max, struct hw_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HEADWATER_H */

#ifndef HEADWATER_STR_OF
#define HEADWATER_STR_OF
// Text that ends with a NUL, as an hw_str without it.
static inline hw_str hw_str_of(const char *text) {
  hw_str str;
  str.data = text;
  str.length = text ? strlen(text) : 0;
  return str;
}
#endif
