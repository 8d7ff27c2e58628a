package headwater

/*
#cgo CFLAGS: -I${SRCDIR}
#cgo !headwater_external LDFLAGS: ${SRCDIR}/lib/libheadwater.a -lgcc_s -lutil -lrt -lpthread -lm -ldl

#if !__has_include("headwater.h")
#error "the library is not built yet: run `make go` in the folder of Headwater's sources"
#endif
#include "headwater.h"
#if __has_include("library.h")
#include "library.h"
#endif

// None of these keeps a pointer that it is given, and none calls back, so that what they are given may stay on the stack.
#cgo noescape hw_open
#cgo nocallback hw_open
#cgo noescape hw_options_init
#cgo nocallback hw_options_init
#cgo noescape hw_close
#cgo nocallback hw_close
#cgo noescape hw_refresh
#cgo nocallback hw_refresh
#cgo noescape hw_flush
#cgo nocallback hw_flush
#cgo noescape hw_compact
#cgo nocallback hw_compact
#cgo noescape hw_release
#cgo nocallback hw_release
#cgo noescape hw_error_free
#cgo nocallback hw_error_free
#cgo noescape hw_stream_parse
#cgo nocallback hw_stream_parse
#cgo noescape hw_stream_describe
#cgo nocallback hw_stream_describe
#cgo noescape hw_snapshot_open
#cgo nocallback hw_snapshot_open
#cgo noescape hw_snapshot_sequence
#cgo nocallback hw_snapshot_sequence
#cgo noescape hw_snapshot_named
#cgo nocallback hw_snapshot_named
#cgo noescape hw_snapshot_drop
#cgo nocallback hw_snapshot_drop
#cgo noescape hw_replay_open
#cgo nocallback hw_replay_open
#cgo noescape hw_replay_next
#cgo nocallback hw_replay_next
#cgo noescape hw_query_stream
#cgo nocallback hw_query_stream
#cgo noescape hw_query_table
#cgo nocallback hw_query_table
#cgo noescape hw_scan_begin
#cgo nocallback hw_scan_begin
#cgo noescape hw_scan_open
#cgo nocallback hw_scan_open
#cgo noescape hw_scan_next
#cgo nocallback hw_scan_next
#cgo noescape hw_read_f64
#cgo nocallback hw_read_f64
#cgo noescape hw_read_many_f64
#cgo nocallback hw_read_many_f64
#cgo noescape hw_last
#cgo nocallback hw_last
#cgo noescape hw_aggregate
#cgo nocallback hw_aggregate
#cgo noescape hw_tile
#cgo nocallback hw_tile
#cgo noescape hw_streams_list
#cgo nocallback hw_streams_list
#cgo noescape hw_batch_new
#cgo nocallback hw_batch_new
#cgo noescape hw_batch_rows
#cgo nocallback hw_batch_rows
#cgo noescape hw_batch_f64
#cgo nocallback hw_batch_f64
#cgo noescape hw_batch_i64
#cgo nocallback hw_batch_i64
#cgo noescape hw_batch_u64
#cgo nocallback hw_batch_u64
#cgo noescape hw_batch_bool
#cgo nocallback hw_batch_bool
#cgo noescape hw_batch_text
#cgo nocallback hw_batch_text
#cgo noescape hw_batch_expire_at
#cgo nocallback hw_batch_expire_at
#cgo noescape hw_batch_set_producer
#cgo nocallback hw_batch_set_producer
#cgo noescape hw_batch_require_all
#cgo nocallback hw_batch_require_all
#cgo noescape hw_write
#cgo nocallback hw_write
#cgo nocallback hw_nothing
#cgo nocallback hw_handle_count
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// text is a Go text as the library takes it, for as long as a call lasts.
func text(s string) C.hw_str {
	if s == "" {
		return C.hw_str{}
	}
	return C.hw_str{data: (*C.char)(unsafe.Pointer(unsafe.StringData(s))), length: C.size_t(len(s))}
}

// pinned is text inside of memory that a call is given; the garbage collector leaves it in place until the pinner is unpinned.
func pinned(pinner *runtime.Pinner, s string) C.hw_str {
	if s != "" {
		pinner.Pin(unsafe.StringData(s))
	}
	return text(s)
}

// goString copies text of the library.
func goString(s C.hw_str) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(s.data)), int(s.length)))
}

// take makes an error of what a call reported, and gives its message back.
func take(e *C.hw_error) error {
	kind, ok := kinds[int32(e.code)]
	if !ok {
		kind = ErrInternal
	}
	message := C.GoStringN(e.message, C.int(e.length))
	if e.code == C.HW_HANDLE {
		message = "the object is closed: open it again"
	}
	C.hw_error_free(e)
	return &Error{Code: words[kind], Message: message, kind: kind}
}

var kinds = map[int32]error{
	C.HW_INVALID: ErrInvalid, C.HW_NOT_FOUND: ErrNotFound, C.HW_BUSY: ErrBusy, C.HW_CLOSED: ErrClosed, C.HW_CORRUPT: ErrCorrupt,
	C.HW_FULL: ErrFull, C.HW_IO: ErrIO, C.HW_LOCKED: ErrLocked, C.HW_READ_ONLY: ErrReadOnly, C.HW_INTERNAL: ErrInternal,
	C.HW_FORKED: ErrForked, C.HW_TIER: ErrTier, C.HW_GONE: ErrGone, C.HW_PANIC: ErrInternal,
	// A handle that is not there any more is one that this package closed.
	C.HW_HANDLE: ErrClosed,
}

// release gives a result or an object back. One that is not there any more is no mistake here: closing a database releases what
// belongs to it.
func release(handle C.uint64_t) {
	C.hw_release(handle, nil)
}

// ownedText copies a text that a call made, and gives it back.
func ownedText(t *C.hw_text) string {
	defer release(t.handle)
	return goString(t.text)
}

// Version gives the version of the library that is linked in.
func Version() string { return goString(C.hw_version()) }

// handleCount gives the number of objects of the library that this process holds, for tests of leaks.
func handleCount() uint64 { return uint64(C.hw_handle_count()) }

// nothing crosses the border and comes back, to measure what that costs.
func nothing() int { return int(C.hw_nothing()) }
