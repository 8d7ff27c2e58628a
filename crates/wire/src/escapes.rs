//! Backslashes within quoted strings, which line protocol and CSV share: they escape `"` and the
//! backslash, and are plain characters before any other character.

/// A string value without its escapes, into `out`.
pub(crate) fn unescape_string(raw: &str, out: &mut Vec<u8>) {
    out.clear();
    let mut rest = raw.as_bytes();
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(rest.get(..at).unwrap_or_default());
        let tail = rest.get(at + 1..).unwrap_or_default();
        match tail {
            [kept @ (b'"' | b'\\'), tail @ ..] => {
                out.push(*kept);
                rest = tail;
            }
            _ => {
                out.push(b'\\');
                rest = tail;
            }
        }
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_quotes_and_backslashes_are_kept() {
        let mut out = Vec::new();
        unescape_string(r#"a\"b\\c\nd\"#, &mut out);
        assert_eq!(out, br#"a"b\c\nd\"#);
        unescape_string(r"\\\\", &mut out);
        assert_eq!(out, br"\\");
    }
}
