//! Elements of the answers of nodes (items of JSON lists, binary tiles, events), which a merged
//! answer copies byte for byte.
//!
//! Invariant: input in an unexpected form returns `None`; no input causes a panic.

/// Elements of the list in a member of a JSON object, unchanged; `None` when the member is missing,
/// or the text has another form.
///
/// ```text
/// {"tiles":[{"a":1},{"b":"]"}],"total":2}   →   {"a":1}  {"b":"]"}
/// ```
pub(super) fn json_items<'a>(text: &'a str, member: &str) -> Option<Vec<&'a str>> {
    let members = strip_brackets(text.trim(), '{', '}')?;
    let name = format!("\"{member}\"");
    let list = split_at_commas(members)?.into_iter().find_map(|member| {
        let value = member.strip_prefix(name.as_str())?.trim_start();
        value.strip_prefix(':').map(str::trim)
    })?;
    split_at_commas(strip_brackets(list, '[', ']')?)
}

fn strip_brackets(text: &str, open: char, close: char) -> Option<&str> {
    text.strip_prefix(open)?.strip_suffix(close)
}

/// Parts of a text between commas outside brackets and strings.
fn split_at_commas(text: &str) -> Option<Vec<&str>> {
    let (mut depth, mut begun) = (0usize, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    let mut parts = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                parts.push(text.get(begun..at)?.trim());
                begun = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 || in_string {
        return None;
    }
    let last = text.get(begun..)?.trim();
    if !last.is_empty() || !parts.is_empty() {
        parts.push(last);
    }
    Some(parts)
}

/// Bytes of the header of several tiles, and of the header of one tile.
const TILES_HEADER_BYTES: usize = 8;
const TILE_HEADER_BYTES: usize = 32;
/// Offset of the number of rows in the header of a tile, and bytes of a row.
const ROW_COUNT_OFFSET: usize = 24;
const ROW_BYTES: usize = 48;

/// Tiles in binary form, one by one.
pub(super) fn binary_tiles(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let (head, mut rest) = bytes.split_at_checked(TILES_HEADER_BYTES)?;
    let (magic, count) = head.split_at_checked(4)?;
    if magic != headwater_wire::tiles::TILES_MAGIC {
        return None;
    }
    let count = u32::from_le_bytes(count.try_into().ok()?);
    let mut all = Vec::new();
    for _ in 0..count {
        let rows = rest.get(ROW_COUNT_OFFSET..ROW_COUNT_OFFSET + 4)?;
        let rows = u32::from_le_bytes(rows.try_into().ok()?);
        let rows = usize::try_from(rows).ok()?.checked_mul(ROW_BYTES)?;
        let (tile, behind) = rest.split_at_checked(TILE_HEADER_BYTES.checked_add(rows)?)?;
        all.push(tile);
        rest = behind;
    }
    rest.is_empty().then_some(all)
}

/// Length of the complete events at the beginning of a text: up to the last empty line.
pub(super) fn complete_events(text: &[u8]) -> usize {
    let blank = text.windows(2).rposition(|pair| pair == b"\n\n");
    blank.map_or(0, |at| at + 2)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_types::{Aggregate, Level};
    use headwater_wire::tiles::{TileStatus, push_tile, push_tiles_head};

    #[test]
    fn elements_of_a_list_come_as_they_are_written() {
        let text = r#" {"total":2,"tiles":[{"a":[1,2]}, {"b":"],\"{"},3.50],"tilesx":[9]} "#;
        let found = json_items(text, "tiles").unwrap();
        assert_eq!(found, [r#"{"a":[1,2]}"#, r#"{"b":"],\"{"}"#, "3.50"]);
        assert_eq!(json_items(r#"{"tiles":[]}"#, "tiles").unwrap(), [""; 0]);
        for wrong in [
            "",
            "[]",
            r#"{"x":1}"#,
            r#"{"tiles":[}"#,
            r#"{"tiles":["a]}"#,
            r#"{"tiles":5}"#,
        ] {
            assert_eq!(json_items(wrong, "tiles"), None, "{wrong}");
        }
    }

    #[test]
    fn tiles_as_bytes_come_one_by_one() {
        let level = Level::clamped(0);
        let mut bytes = Vec::new();
        push_tiles_head(&mut bytes, 2);
        let one = Aggregate {
            count: 1,
            ..Aggregate::EMPTY
        };
        push_tile(&mut bytes, TileStatus::Tile, level, 3, &[(1536, one)]);
        push_tile(&mut bytes, TileStatus::Unknown, level, 3, &[]);
        let found = binary_tiles(&bytes).unwrap();
        assert_eq!(found.iter().map(|t| t.len()).collect::<Vec<_>>(), [80, 32]);
        assert_eq!(binary_tiles(&bytes[..bytes.len() - 1]), None);
        assert_eq!(binary_tiles(b"HWT2\0\0\0\0"), None);
        assert_eq!(complete_events(b": live\n\ndata: 1\n\ndata"), 17);
        assert_eq!(complete_events(b"data: 1\n"), 0);
    }
}
