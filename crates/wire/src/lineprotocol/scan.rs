//! Finds the ends of names and removes their escapes.
//!
//! Rule: in tables, tags and field keys a backslash before `,`, `=`, a space or a backslash escapes
//! that character; before any other character it is a plain backslash. In quoted strings it escapes
//! `"` and the backslash.

/// Length of the part of `text` before the first unescaped byte for which `ends` is true.
pub(super) fn unescaped_end(text: &[u8], ends: impl Fn(u8) -> bool) -> usize {
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        if *byte == b'\\' {
            bytes.next();
        } else if ends(*byte) {
            return at;
        }
    }
    text.len()
}

/// A name without its escapes.
pub(super) fn unescaped_name(raw: &str) -> String {
    if memchr::memchr(b'\\', raw.as_bytes()).is_none() {
        return raw.to_owned();
    }
    without_backslashes(raw, |c| matches!(c, ',' | '=' | ' ' | '\\'))
}

fn without_backslashes(raw: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some(next) if is_kept(next) => out.push(next),
            Some(next) => out.extend(['\\', next]),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_hide_ends() {
        assert_eq!(unescaped_end(br"a\ b c", |b| b == b' '), 4);
        assert_eq!(unescaped_end(br"a\\ c", |b| b == b' '), 3);
        assert_eq!(unescaped_end(br"abc\", |b| b == b' '), 4);
    }

    #[test]
    fn only_some_characters_need_the_backslash() {
        assert_eq!(unescaped_name(r"a\ b\,c\=d\\e\f\"), r"a b,c=d\e\f\");
    }
}
