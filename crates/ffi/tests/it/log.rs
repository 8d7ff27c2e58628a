//! What the engine tells beside results.

use crate::common::{Db, fails, ok, open, text};
use headwater_ffi::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;

type LogLines = Mutex<Vec<(i32, String)>>;

unsafe extern "C" fn receive(user: *mut c_void, level: i32, message: hw_str) {
    // SAFETY: the test gives this with the function, and lives longer.
    let told = unsafe { &*user.cast::<LogLines>() };
    told.lock().unwrap().push((level, text(message)));
}

#[test]
fn what_opening_puts_right_is_told_to_the_receiver() {
    let db = Db::new();
    let path = db.dir.path().join("db/segment/4000000000.seg");
    // SAFETY: handles are checked.
    ok(|e| unsafe { hw_close(db.db, e) });
    let open_with_stray_file = || {
        std::fs::write(&path, b"left behind").unwrap();
        // SAFETY: handles are checked.
        ok(|e| unsafe { hw_close(open(&db.dir, |_| {}), e) });
        assert!(!path.exists());
    };
    let told: LogLines = Mutex::default();
    let user = (&raw const told).cast_mut().cast::<c_void>();
    // Other tests open databases too; what concerns this one names its file.
    let ours = || -> Vec<(i32, String)> {
        let mut told = told.lock().unwrap();
        let all = std::mem::take(&mut *told).into_iter();
        all.filter(|(_, m)| m.contains(path.to_str().unwrap()))
            .collect()
    };
    // SAFETY: `told` lives until there is no receiver any more.
    unsafe {
        ok(|e| hw_log_to(Some(receive), user, HW_LOG_INFO, e));
        open_with_stray_file();
        let message = format!(
            "removed an uncommitted segment file path={}",
            path.display()
        );
        assert_eq!(ours(), [(HW_LOG_INFO, message)]);
        ok(|e| hw_log_to(Some(receive), user, HW_LOG_WARN, e));
        open_with_stray_file();
        assert_eq!(ours(), []);
        ok(|e| hw_log_to(None, null_mut(), HW_LOG_INFO, e));
        open_with_stray_file();
        assert_eq!(ours(), []);
        let wrong = fails(|e| hw_log_to(Some(receive), user, 4, e));
        assert!(
            wrong.0 == HW_INVALID && wrong.1.contains("HW_LOG_INFO"),
            "{wrong:?}"
        );
    }
}
