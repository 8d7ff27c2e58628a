/* Pumps: writes an hour of readings of two pumps, and asks for them in several ways.
 *
 *   make ffi
 *   cc -std=c11 -O2 examples/c/pumps.c -I"$(make -s ffi-dir)/include" -L"$(make -s ffi-dir)/lib" \
 *      -l:libheadwater.a -lm -ldl -lpthread -o pumps
 *   ./pumps pumps.db
 *
 * See docs/embed/c.md.
 */
#include "headwater.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND INT64_C(1000000000)
#define START (INT64_C(1700000000) * SECOND) /* instants are nanoseconds since 1970 UTC */
#define ROWS 3600

static hw_error error; /* all zeros */

/* Ends the program when a call has failed. */
static void must(int32_t code, const char *what) {
  if (code == HW_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, hw_code_name(code), error.message ? error.message : "");
  hw_error_free(&error);
  exit(1);
}

static hw_stream pump(hw_db db, const char *id) {
  hw_tag tags[] = {{hw_str_of("site"), hw_str_of("north")}, {hw_str_of("id"), hw_str_of(id)}};
  hw_stream stream;
  must(hw_stream_open(db, hw_str_of("pumps"), tags, 2, &stream, &error), "stream");
  return stream;
}

/* An hour of readings, a batch of two streams: all of it is stored, or nothing. */
static void write_readings(hw_db db, hw_stream p1, hw_stream p2) {
  static int64_t times[ROWS];
  static double pressure[ROWS];
  static uint8_t running[ROWS], has_pressure[(ROWS + 7) / 8];
  for (int i = 0; i < ROWS; i++) {
    times[i] = START + i * SECOND;
    pressure[i] = 4.0 + i / 1000.0;
    running[i] = i % 600 < 500;
    if (i % 2 == 0) has_pressure[i / 8] |= (uint8_t)(1u << (i % 8)); /* every second row has one */
  }
  hw_batch batch;
  hw_written written;
  must(hw_batch_new(&batch, &error), "batch");
  must(hw_batch_rows(batch, p1, times, ROWS, &error), "rows");
  must(hw_batch_f64(batch, hw_str_of("pressure"), pressure, NULL, &error), "pressure");
  must(hw_batch_bool(batch, hw_str_of("running"), running, NULL, &error), "running");
  must(hw_batch_rows(batch, p2, times, ROWS, &error), "rows");
  must(hw_batch_f64(batch, hw_str_of("pressure"), pressure, has_pressure, &error), "pressure");
  must(hw_write(db, batch, &written, &error), "write"); /* on the medium when this returns */
  printf("wrote %" PRIu64 " rows\n", written.accepted);

  /* A row that does not fit comes back with its place and a reason, and the others are stored. */
  hw_field_value wrong = {hw_str_of("pressure"), {0}};
  wrong.value.value_type = HW_STRING;
  wrong.value.text = hw_str_of("high");
  must(hw_batch_row(batch, p1, START, &wrong, 1, &error), "row");
  must(hw_write(db, batch, &written, &error), "write");
  for (size_t i = 0; i < written.refused_count; i++) {
    const hw_refused *refused = &written.refused[i];
    printf("row %zu refused: %.*s\n", refused->row, (int)refused->code.length, refused->code.data);
  }
  if (written.handle) must(hw_release(written.handle, &error), "release");
  must(hw_release(batch, &error), "release");
}

/* The rows of the last ten seconds, as columns. */
static void read_rows(hw_stream p2) {
  hw_str fields[] = {hw_str_of("pressure"), hw_str_of("running")};
  hw_query query;
  hw_rows rows;
  must(hw_query_stream(p2, fields, 2, NULL, 0, &query, &error), "query");
  must(hw_read(query, 0, START + 3590 * SECOND, INT64_MAX, &rows, &error), "read");
  printf("read %zu rows of %.*s\n", rows.row_count, (int)rows.stream.text.length, rows.stream.text.data);
  const hw_column *pressure = &rows.columns[0];
  for (size_t i = 0; i < rows.row_count; i++) {
    int present = !pressure->validity || (pressure->validity[i / 8] >> (i % 8) & 1);
    if (present) printf("  %" PRId64 " %.3f\n", rows.times_ns[i] / SECOND, ((const double *)pressure->values)[i]);
  }
  must(hw_release(rows.handle, &error), "release");
  must(hw_release(query, &error), "release");
}

/* All rows of the table, stream after stream, some at a time: memory stays bounded whatever there is. */
static void scan_table(hw_db db) {
  hw_filter filter = {hw_str_of("pressure"), HW_GREATER, {0}};
  filter.value.value_type = HW_F64;
  filter.value.f64 = 7.0;
  hw_query query;
  hw_scan scan;
  must(hw_query_table(db, hw_str_of("pumps"), NULL, 0, NULL, 0, &filter, 1, &query, &error), "query");
  must(hw_scan_open(query, 0, INT64_MIN, INT64_MAX, &scan, &error), "scan");
  size_t count = 0;
  for (;;) {
    hw_rows rows;
    must(hw_scan_next(scan, &rows, &error), "next");
    if (rows.handle == 0) break;
    count += rows.row_count;
    must(hw_release(rows.handle, &error), "release");
  }
  printf("scanned %zu rows above 7\n", count);
  must(hw_release(scan, &error), "release");
  must(hw_release(query, &error), "release");
}

/* Means of twenty minutes, and a tile: both from stored aggregates where the rows are many. */
static void aggregates(hw_stream p1) {
  hw_aggregate_spec spec = {0};
  spec.first_ns = INT64_MIN;
  spec.last_ns = INT64_MAX;
  spec.bins = HW_EVERY_WIDTH;
  spec.width_ns = 1200 * SECOND;
  spec.origin_ns = START;
  hw_bins bins;
  must(hw_aggregate(p1, 0, hw_str_of("pressure"), &spec, &bins, &error), "aggregate");
  for (size_t i = 0; i < bins.count; i++) {
    const hw_bin *bin = &bins.bins[i];
    printf("  %" PRId64 " count %" PRIu64 " min %.3f max %.3f mean %.4f\n", bin->start_ns / SECOND, bin->count, bin->min,
           bin->max, bin->mean);
  }
  must(hw_release(bins.handle, &error), "release");
  /* Level 4: buckets of 16 s, tiles of 8,192 s. */
  must(hw_tile(p1, 0, hw_str_of("pressure"), 4, START / (8192 * SECOND), &bins, &error), "tile");
  uint64_t count = 0;
  for (size_t i = 0; i < bins.count; i++) count += bins.bins[i].count;
  printf("the tile has %zu buckets with %" PRIu64 " values\n", bins.count, count);
  must(hw_release(bins.handle, &error), "release");
}

static void newest(hw_stream p1) {
  hw_last_values last;
  must(hw_last(p1, 0, &last, &error), "last");
  for (size_t i = 0; i < last.count; i++) {
    const hw_last_value *value = &last.values[i];
    printf("newest %.*s at %" PRId64 ": ", (int)value->field.length, value->field.data, value->time_ns / SECOND);
    if (value->value.value_type == HW_F64) printf("%.3f\n", value->value.f64);
    if (value->value.value_type == HW_BOOL) printf("%s\n", value->value.boolean ? "true" : "false");
  }
  must(hw_release(last.handle, &error), "release");
}

/* What goes wrong is a code and a message; nothing crashes. */
static void errors(hw_stream p1) {
  hw_bins bins;
  int32_t code = hw_tile(p1, 0, hw_str_of("colour"), 4, 0, &bins, &error);
  printf("%s: %s\n", hw_code_name(code), error.message);
  hw_error_free(&error);
  must(hw_release(p1, &error), "release");
  code = hw_release(p1, NULL); /* without a message: the code alone */
  printf("released twice: %s\n", hw_code_name(code));
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: pumps FOLDER\n");
    return 2;
  }
  hw_options options;
  hw_db db;
  must(HW_OPTIONS_INIT(&options, &error), "options");
  options.memory_budget_bytes = 16u << 20;
  must(hw_open(hw_str_of(argv[1]), &options, &db, &error), "open");
  hw_stream p1 = pump(db, "p1"), p2 = pump(db, "p2");
  write_readings(db, p1, p2);
  read_rows(p2);
  scan_table(db);
  aggregates(p1);
  newest(p1);
  errors(p1);
  must(hw_release(p2, &error), "release");
  must(hw_close(db, &error), "close");
  printf("handles left: %" PRIu64 "\n", hw_handle_count());
  return 0;
}
