//! Counts that may only fall: what the rules of the house want seldom, and there is still much of.

use tidy::{assert_none, counts};

/// For each crate its counts.
const MOST: [(&str, [(&str, usize); 8]); 0] = [];

#[test]
fn what_is_to_become_seldom_becomes_no_more() {
    let mut offences = Vec::new();
    for (folder, most) in MOST {
        let found = counts::of(folder);
        assert_eq!(
            found.len(),
            most.len(),
            "{folder}: every count has a number"
        );
        for (what, most) in most {
            let count = found[what];
            if count > most {
                offences.push(format!(
                    "{folder}: {count} × {what}; {most} were there before"
                ));
            } else if count < most {
                offences.push(format!(
                    "{folder}: {count} × {what}; write that number down instead of {most}"
                ));
            }
        }
    }
    assert_none("counts that may only fall", &offences);
}
