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
