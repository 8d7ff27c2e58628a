package headwater

import (
	"errors"
	"fmt"
)

// What a caller can do about an error. Test with errors.Is:
//
//	if errors.Is(err, headwater.ErrBusy) { … try again later … }
var (
	// ErrInvalid: the request itself is wrong; change it.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: a table, stream or field that is not there.
	ErrNotFound = errors.New("not found")
	// ErrBusy: too much at once; try again later.
	ErrBusy = errors.New("busy")
	// ErrClosed: the database, snapshot or stream was closed, or the database takes no writes after a failed one until it is
	// opened again.
	ErrClosed = errors.New("closed")
	// ErrCorrupt: bytes on the medium are not what was written; run Check.
	ErrCorrupt = errors.New("corrupt")
	// ErrFull: no space left; free some, or delete data.
	ErrFull = errors.New("full")
	// ErrIO: the operating system refused.
	ErrIO = errors.New("io")
	// ErrLocked: another process owns the directory.
	ErrLocked = errors.New("locked")
	// ErrReadOnly: the database was opened read-only.
	ErrReadOnly = errors.New("read only")
	// ErrForked: the database was opened by the process that this one was forked from; open it after the fork.
	ErrForked = errors.New("forked")
	// ErrTier: the fast tier of the database is missing, or belongs to another database or an older state; bring it back.
	ErrTier = errors.New("tier")
	// ErrGone: what was there and is not kept any more, such as a named snapshot that ended by itself.
	ErrGone = errors.New("gone")
	// ErrInternal: an internal error of Headwater.
	ErrInternal = errors.New("internal")
	// ErrRefused: rows of a batch do not fit and are not stored; errors.As with *RefusedError names them. The other rows of the
	// batch are stored, unless it was marked by Batch.RequireAll.
	ErrRefused = errors.New("refused")
)

// Error is what the engine reports. Code is a stable word for programs and logs; the message says what was expected, what was
// found and what to do.
type Error struct {
	// Code is the kind as a stable word: invalid, not_found, busy, closed, corrupt, full, io, locked, read_only, forked,
	// tier, gone, internal.
	Code string
	// Message is for people.
	Message string

	kind error
}

// Error gives code and message.
func (e *Error) Error() string { return "headwater: " + e.Code + ": " + e.Message }

// Unwrap gives the sentinel of the error's kind, so that errors.Is finds it.
func (e *Error) Unwrap() error { return e.kind }

// words are the stable words of the kinds.
var words = map[error]string{
	ErrInvalid: "invalid", ErrNotFound: "not_found", ErrBusy: "busy", ErrClosed: "closed", ErrCorrupt: "corrupt",
	ErrFull: "full", ErrIO: "io", ErrLocked: "locked", ErrReadOnly: "read_only", ErrForked: "forked",
	ErrTier: "tier", ErrGone: "gone", ErrInternal: "internal",
}

// failure makes an error of this package's own.
func failure(kind error, format string, args ...any) *Error {
	return &Error{Code: words[kind], Message: fmt.Sprintf(format, args...), kind: kind}
}

// Refused is a row that was not stored.
type Refused struct {
	// Stream is the row's stream, as `table,tag=value`.
	Stream string
	// Row is the row's place among the rows of this stream and call of Row or Columns: the first is 0.
	Row int
	// Code is a stable word for the reason, E_TYPE for example.
	Code string
	// Message says what was expected and found.
	Message string
}

// RefusedError says which rows of a batch were not stored, and why.
type RefusedError struct {
	// Rows names the rows; the first 1,000 of them.
	Rows []Refused
	// Total is their number.
	Total int
}

// Error names the first row.
func (e *RefusedError) Error() string {
	if len(e.Rows) == 0 {
		return fmt.Sprintf("headwater: %d rows refused", e.Total)
	}
	first := e.Rows[0]
	return fmt.Sprintf("headwater: %d rows refused, the first: %s, row %d: %s: %s",
		e.Total, first.Stream, first.Row, first.Code, first.Message)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }
