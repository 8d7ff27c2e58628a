package headwater

// #include "headwater.h"
import "C"

import (
	"context"
)

// Stats gives counters and sizes.
func (db *DB) Stats() (Stats, error) {
	var stats Stats
	err := db.report(&stats, func(t *C.hw_text, e *C.hw_error) C.int32_t { return C.hw_stats(db.handle, t, e) })
	return stats, err
}

// LateReport is what is known and decided about events that arrive out of order.
type LateReport struct {
	// Choice is who decides: "adaptive", or the policy that was set.
	Choice string `json:"choice"`
	Shards []struct {
		// InForce is the shard's policy.
		InForce string `json:"in_force"`
		// LateShare is the share of events that were late, of those looked at.
		LateShare float64 `json:"late_share"`
		// Events that were looked at.
		Events uint64 `json:"events"`
		// Candidates with what they are predicted to write, in events for each event accepted.
		Candidates []struct {
			Policy    string   `json:"policy"`
			Predicted *float64 `json:"predicted"`
		} `json:"candidates"`
		// Decisions are the newest changes.
		Decisions []struct {
			AtEvents uint64 `json:"at_events"`
			From     string `json:"from"`
			To       string `json:"to"`
			Reason   string `json:"reason"`
		} `json:"decisions"`
	} `json:"shards"`
}

// Late tells what is known and decided about events that arrive out of order.
func (db *DB) Late() (LateReport, error) {
	var late LateReport
	err := db.report(&late, func(t *C.hw_text, e *C.hw_error) C.int32_t { return C.hw_late(db.handle, t, e) })
	return late, err
}

// SetLatePolicy changes who decides on the policy for late events, until the database is closed; see LatePolicy.
func (db *DB) SetLatePolicy(ctx context.Context, policy string) error {
	return db.do(ctx, func() error {
		var e C.hw_error
		if C.hw_set_late_policy(db.handle, text(policy), &e) != C.HW_OK {
			return take(&e)
		}
		return nil
	})
}

// CheckReport says what a check found.
type CheckReport struct {
	// IsSound is true when nothing is damaged.
	IsSound bool `json:"is_sound"`
	// Damages are the damaged parts.
	Damages []Damage `json:"damages"`
	// What was read.
	Segments   uint64 `json:"segments"`
	Leaves     uint64 `json:"leaves"`
	Blocks     uint64 `json:"blocks"`
	Rows       uint64 `json:"rows"`
	LogRecords uint64 `json:"log_records"`
}

// Damage is a part of a file that is not what was written.
type Damage struct {
	File     string `json:"file"`
	Offset   uint64 `json:"offset"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

// Check reads every byte of the database and compares checksums, order and aggregates, beside those who use it. Damage is no error of the
// call but part of the report.
func (db *DB) Check(ctx context.Context) (CheckReport, error) {
	return call(ctx, db, func() (CheckReport, error) {
		var sound C.uint8_t
		var report CheckReport
		err := db.report(&report, func(t *C.hw_text, e *C.hw_error) C.int32_t { return C.hw_check(db.handle, &sound, t, e) })
		return report, err
	})
}

// BackupReport says what a backup holds.
type BackupReport struct {
	// Number of the backup in its folder.
	Number uint64 `json:"number"`
	// Sequence of the newest record in it.
	Sequence uint64 `json:"sequence"`
	// Files and Bytes of the backup, BytesCopied by this one.
	Files       uint64 `json:"files"`
	Bytes       uint64 `json:"bytes"`
	BytesCopied uint64 `json:"bytes_copied"`
	// FilesVerified were there already and had their checksums compared; FilesMended of them had decayed and were copied anew.
	FilesVerified uint64 `json:"files_verified"`
	FilesMended   uint64 `json:"files_mended"`
	// Damages of the database: what of these files cannot be read is not in the backup, or only as an older backup has it.
	Damages []Damage `json:"damages"`
}

// Backup backs the database up into a folder, beside those who use it: one state of it, with everything acknowledged before this call.
// Into a folder with an older backup of the same database only what is new is copied.
func (db *DB) Backup(ctx context.Context, folder string) (BackupReport, error) {
	return call(ctx, db, func() (BackupReport, error) {
		var report BackupReport
		err := db.report(&report, func(t *C.hw_text, e *C.hw_error) C.int32_t { return C.hw_backup(db.handle, text(folder), t, e) })
		return report, err
	})
}

// VerifyBackup checks a backup: the checksum of every file, and all that DB.Check checks of a database.
func VerifyBackup(ctx context.Context, folder string) (CheckReport, error) {
	return call(ctx, nil, func() (CheckReport, error) {
		var e C.hw_error
		var t C.hw_text
		var sound C.uint8_t
		if C.hw_verify_backup(text(folder), &sound, &t, &e) != C.HW_OK {
			return CheckReport{}, take(&e)
		}
		var report CheckReport
		return report, read(&report, &t)
	})
}

// Restore makes a database in a folder, which is empty or not there, of a backup, and checks all of it.
func Restore(ctx context.Context, backupFolder, dir string) (CheckReport, error) {
	return call(ctx, nil, func() (CheckReport, error) {
		var e C.hw_error
		var t C.hw_text
		var sound C.uint8_t
		if C.hw_restore(text(backupFolder), text(dir), &sound, &t, &e) != C.HW_OK {
			return CheckReport{}, take(&e)
		}
		var report CheckReport
		return report, read(&report, &t)
	})
}

// RepairReport says what a repair found and did.
type RepairReport struct {
	// Findings are the damaged parts, and what was done about each.
	Findings []struct {
		Damage Damage `json:"damage"`
		Action string `json:"action"`
	} `json:"findings"`
	// Lost says what is gone.
	Lost []string `json:"lost"`
	// Quarantined are copies of damaged files, made before anything was changed.
	Quarantined []string `json:"quarantined"`
	// After is what a check says now.
	After CheckReport `json:"after"`
}

// Repair repairs the database in a folder, which must not be open: what can be read stays. With dryRun it changes nothing and tells
// what it would do.
func Repair(ctx context.Context, dir string, dryRun bool) (RepairReport, error) {
	return call(ctx, nil, func() (RepairReport, error) {
		var e C.hw_error
		var t C.hw_text
		dry := C.uint8_t(0)
		if dryRun {
			dry = 1
		}
		if C.hw_repair(text(dir), dry, &t, &e) != C.HW_OK {
			return RepairReport{}, take(&e)
		}
		var report RepairReport
		return report, read(&report, &t)
	})
}
