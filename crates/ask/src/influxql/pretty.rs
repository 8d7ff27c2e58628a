//! Indented JSON, piece by piece.
//!
//! Invariant: the output does not depend on how a text is cut into pieces; its meaning stays the
//! same.

/// Writes indented JSON, with four spaces per level.
#[derive(Debug, Default)]
pub struct Pretty {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// True if the last byte opened a list or an object, which may still be empty.
    just_opened: bool,
}

impl Pretty {
    /// Formats the next piece.
    ///
    /// ```
    /// use headwater_ask::influxql::Pretty;
    /// let mut pretty = Pretty::default();
    /// let mut text = pretty.piece(b"{\"a\":[");
    /// text.extend(pretty.piece(b"]}"));
    /// assert_eq!(text, b"{\n    \"a\": []\n}");
    /// ```
    #[must_use]
    pub fn piece(&mut self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(json.len() * 2);
        for byte in json {
            self.byte(*byte, &mut out);
        }
        out
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.in_text {
            out.push(byte);
            self.in_text = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return;
        }
        let closes = matches!(byte, b'}' | b']');
        if self.just_opened {
            self.just_opened = false;
            if closes {
                out.push(byte);
                return;
            }
            self.depth += 1;
            self.line(out);
        }
        match byte {
            b'{' | b'[' => {
                out.push(byte);
                self.just_opened = true;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.line(out);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                self.line(out);
            }
            b':' => out.extend_from_slice(b": "),
            b'"' => {
                out.push(byte);
                self.in_text = true;
            }
            byte => out.push(byte),
        }
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', self.depth * 4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_same_however_it_is_cut() {
        let text = b"{\"a\":[],\"b\\\"{\":[1,{}]}\n";
        let wanted = "{\n    \"a\": [],\n    \"b\\\"{\": [\n        1,\n        {}\n    ]\n}\n";
        for cut in 0..=text.len() {
            let (first, rest) = text.split_at(cut);
            let mut pretty = Pretty::default();
            let mut out = pretty.piece(first);
            out.extend(pretty.piece(rest));
            assert_eq!(String::from_utf8_lossy(&out), wanted, "{cut}");
        }
    }
}
