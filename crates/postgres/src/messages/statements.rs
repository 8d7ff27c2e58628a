//! Boundaries of the statements of a text, and the first words of each.
//!
//! Quotes, comments and dollar quotes are followed as in PostgreSQL with
//! `standard_conforming_strings`; other syntax is ignored.

/// One statement of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementText<'a> {
    /// Text without the semicolon, and without surrounding spaces and comments.
    pub text: &'a str,
    /// Offset in the whole text, in bytes.
    pub at: usize,
}

/// Splits a text at semicolons. Parts that contain only spaces and comments are left out.
#[must_use]
pub fn split(text: &str) -> Vec<StatementText<'_>> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::new();
    // Range from the first byte of the statement to after the last byte, without surrounding spaces
    // and comments.
    let mut found: Option<(usize, usize)> = None;
    let mut at = 0;
    loop {
        at = after_blanks(bytes, at);
        if at >= bytes.len() || bytes[at] == b';' {
            if let Some((begin, end)) = found.take() {
                let text = text.get(begin..end).unwrap_or_default();
                pieces.push(StatementText { text, at: begin });
            }
            if at >= bytes.len() {
                return pieces;
            }
            at += 1;
            continue;
        }
        let end = after_token(bytes, at);
        found = Some((found.map_or(at, |(begin, _)| begin), end));
        at = end;
    }
}

/// The first words of a statement in capitals, at most `most` of them; anything but letters, digits
/// and underscores ends the list.
#[must_use]
pub fn words(statement: &str, most: usize) -> Vec<String> {
    let bytes = statement.as_bytes();
    let mut words = Vec::new();
    let mut at = after_blanks(bytes, 0);
    while words.len() < most && at < bytes.len() && is_word(bytes[at]) {
        let end = after_word(bytes, at);
        words.push(statement[at..end].to_ascii_uppercase());
        at = after_blanks(bytes, end);
    }
    words
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn after_word(bytes: &[u8], at: usize) -> usize {
    let word = bytes[at..].iter().take_while(|b| is_word(**b));
    at + word.count()
}

/// Offset after spaces and comments, also nested ones.
fn after_blanks(bytes: &[u8], mut at: usize) -> usize {
    loop {
        match bytes.get(at..).unwrap_or_default() {
            [b'-', b'-', rest @ ..] => {
                at += 2 + memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            }
            [b'/', b'*', ..] => {
                let mut depth = 1;
                at += 2;
                while depth > 0 {
                    match bytes.get(at..).unwrap_or_default() {
                        [] => return bytes.len(),
                        [b'/', b'*', ..] => {
                            depth += 1;
                            at += 2;
                        }
                        [b'*', b'/', ..] => {
                            depth -= 1;
                            at += 2;
                        }
                        _ => at += 1,
                    }
                }
            }
            [b, ..] if b.is_ascii_whitespace() || *b == 0x0b => at += 1,
            _ => return at,
        }
    }
}

/// Offset after the token at `at`, which is not a space: a quoted text, a name, or one byte.
fn after_token(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        quote @ (b'\'' | b'"') => after_quote(bytes, at + 1, quote, false),
        b'$' => after_dollar(bytes, at).unwrap_or(at + 1),
        byte if is_word(byte) || byte >= 0x80 => {
            let word = bytes[at..]
                .iter()
                .take_while(|b| is_word(**b) || **b >= 0x80 || **b == b'$');
            let end = at + word.count();
            let escaped = matches!(&bytes[at..end], b"e" | b"E");
            match bytes.get(end) {
                Some(b'\'') if escaped => after_quote(bytes, end + 1, b'\'', true),
                _ => end,
            }
        }
        _ => at + 1,
    }
}

/// Offset after the quote that ends a text; two quotes stand for one.
fn after_quote(bytes: &[u8], mut at: usize, quote: u8, backslash: bool) -> usize {
    while let Some(byte) = bytes.get(at) {
        if *byte == quote {
            if bytes.get(at + 1) != Some(&quote) {
                return at + 1;
            }
            at += 1;
        } else if *byte == b'\\' && backslash {
            at += 1;
        }
        at += 1;
    }
    bytes.len()
}

/// Offset after `$tag$…$tag$`; `None` = this dollar sign does not begin a quote.
fn after_dollar(bytes: &[u8], at: usize) -> Option<usize> {
    let tag = bytes[at + 1..].iter().position(|b| !is_word(*b))?;
    if bytes[at + 1 + tag] != b'$' || bytes[at + 1].is_ascii_digit() {
        return None;
    }
    let body = at + tag + 2;
    let mark = &bytes[at..body];
    let end = memchr::memmem::find(&bytes[body..], mark);
    Some(end.map_or(bytes.len(), |end| body + end + mark.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_semicolons_between_statements_split() {
        for (text, wanted) in [
            ("", &[][..]),
            (" ; ;-- x\n;/* ; */", &[]),
            ("select 1", &["select 1"]),
            (" select 1 ; select 2;", &["select 1", "select 2"]),
            ("select ';'';' ; x", &["select ';'';'", "x"]),
            ("select \"a;b\"; x", &["select \"a;b\"", "x"]),
            ("select E'\\';'; x", &["select E'\\';'", "x"]),
            ("select '\\'; x", &["select '\\'", "x"]),
            ("select $$;$$; x", &["select $$;$$", "x"]),
            ("select $a$;$$;$a$; x", &["select $a$;$$;$a$", "x"]),
            ("select $1;x", &["select $1", "x"]),
            (
                "a /* ; /* ; */ ; */ b; c -- ;",
                &["a /* ; /* ; */ ; */ b", "c"],
            ),
            ("select 'ä;'; ü", &["select 'ä;'", "ü"]),
            ("select 'open; x", &["select 'open; x"]),
            ("select a$;x", &["select a$", "x"]),
        ] {
            let pieces = split(text);
            let texts: Vec<&str> = pieces.iter().map(|p| p.text).collect();
            assert_eq!(texts, wanted, "{text}");
            for piece in pieces {
                assert!(text[piece.at..].starts_with(piece.text), "{text}");
            }
        }
    }

    #[test]
    fn words_are_the_first_ones() {
        let of = |text| words(text, 3).join(" ");
        assert_eq!(
            of("/* x */ set\n session time zone 'x'"),
            "SET SESSION TIME"
        );
        assert_eq!(of("begin;"), "BEGIN");
        assert_eq!(of("deallocate \"x\""), "DEALLOCATE");
        assert_eq!(of("("), "");
    }

    proptest! {
        #[test]
        fn any_text_is_split_into_parts_of_it(text in "[a;'\"$eE\\\\/*\\- \n1ä]{0,60}") {
            let mut after = 0;
            for piece in split(&text) {
                prop_assert!(piece.at >= after && !piece.text.is_empty());
                prop_assert_eq!(&text[piece.at..piece.at + piece.text.len()], piece.text);
                after = piece.at + piece.text.len();
                prop_assert!(words(piece.text, 4).len() <= 4);
            }
        }
    }
}
