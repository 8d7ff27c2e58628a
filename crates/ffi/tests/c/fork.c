/* A parent that forks while its database is open, goes on, and is killed; and what its child is told. */
#include "headwater.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static hw_error error; /* all zeros */

static void must(int32_t code, const char *what) {
  if (code == HW_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, hw_code_name(code), error.message ? error.message : "");
  hw_error_free(&error);
  exit(1);
}

/* What a call said, in a word. */
static void told(int32_t code, const char *what) {
  printf("%s: %s\n", what, hw_code_name(code));
  hw_error_free(&error);
}

static int32_t write_row(hw_stream stream, int64_t time) {
  double value = (double)time;
  hw_column column = {0};
  column.name = hw_str_of("v");
  column.value_type = HW_F64;
  column.values = &value;

  hw_written written;
  return hw_write_columns(stream, &time, 1, &column, 1, &written, &error);
}

int main(int count, char **arguments) {
  if (count != 2) return 2;
  hw_db db;
  must(hw_open(hw_str_of(arguments[1]), NULL, &db, &error), "open");
  hw_tag tag = {hw_str_of("id"), hw_str_of("1")};
  hw_stream stream;
  must(hw_stream_open(db, hw_str_of("t"), &tag, 1, &stream, &error), "stream");
  for (int64_t time = 0; time < 5; time++) must(write_row(stream, time), "write");
  pid_t child = fork();
  if (child < 0) return 3;
  if (child == 0) {
    told(write_row(stream, 100), "write");
    told(hw_flush(db, &error), "flush");
    hw_snapshot snapshot;
    told(hw_snapshot_open(db, &snapshot, &error), "snapshot");
    hw_db own;
    told(hw_open(hw_str_of(arguments[1]), NULL, &own, &error), "open");
    told(hw_close(db, &error), "close");
    exit(0); /* as any program ends: nothing of the parent's is stored, closed or unlocked by it */
  }
  for (int64_t time = 5; time < 8; time++) must(write_row(stream, time), "write");
  int status = 0;
  if (waitpid(child, &status, 0) != child) return 4;
  printf("the child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  for (int64_t time = 8; time < 10; time++) must(write_row(stream, time), "write");
  fflush(stdout);
  raise(SIGKILL);
  return 5;
}
