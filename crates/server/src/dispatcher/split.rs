//! Splits answers of nodes into elements, so that they can be merged: each element is copied byte
//! for byte.
//!
//! Invariant: input in an unexpected form returns `None`; no input causes a panic.

/// Elements of the list in a member of a JSON object, unchanged; `None` when the member is missing,
/// or the text has another form.
///
/// ```text
/// {"tiles":[{"a":1},{"b":"]"}],"total":2}   →   {"a":1}  {"b":"]"}
/// ```
pub(super) fn items<'a>(text: &'a str, member: &str) -> Option<Vec<&'a str>> {
    let members = inside(text.trim(), '{', '}')?;
    let name = format!("\"{member}\"");
    let list = apart(members)?.into_iter().find_map(|member| {
        let value = member.strip_prefix(name.as_str())?.trim_start();
        value.strip_prefix(':').map(str::trim)
    })?;
    apart(inside(list, '[', ']')?)
}

fn inside(text: &str, open: char, close: char) -> Option<&str> {
    text.strip_prefix(open)?.strip_suffix(close)
}

/// Parts of a text between commas outside brackets and strings.
fn apart(text: &str) -> Option<Vec<&str>> {
    let (mut depth, mut begun) = (0usize, 0);
    let (mut in_string, mut is_kept) = (false, false);
    let mut parts = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_kept => is_kept = false,
            b'\\' if in_string => is_kept = true,
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

/// Bytes of the head of several tiles, and of the head of one tile.
const HEAD: usize = 8;
const TILE_HEAD: usize = 32;
/// Offset of the number of rows in the head of a tile, and bytes of a row.
const ROWS_AT: usize = 24;
const ROW: usize = 48;

/// Tiles in binary form, one by one.
pub(super) fn tiles(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let (head, mut rest) = bytes.split_at_checked(HEAD)?;
    let (magic, count) = head.split_at_checked(4)?;
    if magic != headwater_wire::tiles::TILES_MAGIC {
        return None;
    }
    let count = u32::from_le_bytes(count.try_into().ok()?);
    let mut all = Vec::new();
    for _ in 0..count {
        let rows = rest.get(ROWS_AT..ROWS_AT + 4)?;
        let rows = u32::from_le_bytes(rows.try_into().ok()?);
        let rows = usize::try_from(rows).ok()?.checked_mul(ROW)?;
        let (tile, behind) = rest.split_at_checked(TILE_HEAD.checked_add(rows)?)?;
        all.push(tile);
        rest = behind;
    }
    rest.is_empty().then_some(all)
}

/// Length of the complete events at the beginning of a text: up to the last empty line.
pub(super) fn whole_events(text: &[u8]) -> usize {
    let blank = text.windows(2).rposition(|pair| pair == b"\n\n");
    blank.map_or(0, |at| at + 2)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater::{Aggregate, Level};
    use headwater_wire::tiles::{TileStatus, push_tile, push_tiles_head};

    #[test]
    fn elements_of_a_list_come_as_they_are_written() {
        let text = r#" {"total":2,"tiles":[{"a":[1,2]}, {"b":"],\"{"},3.50],"tilesx":[9]} "#;
        let found = items(text, "tiles").unwrap();
        assert_eq!(found, [r#"{"a":[1,2]}"#, r#"{"b":"],\"{"}"#, "3.50"]);
        assert_eq!(items(r#"{"tiles":[]}"#, "tiles").unwrap(), [""; 0]);
        for wrong in [
            "",
            "[]",
            r#"{"x":1}"#,
            r#"{"tiles":[}"#,
            r#"{"tiles":["a]}"#,
            r#"{"tiles":5}"#,
        ] {
            assert_eq!(items(wrong, "tiles"), None, "{wrong}");
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
        let found = tiles(&bytes).unwrap();
        assert_eq!(found.iter().map(|t| t.len()).collect::<Vec<_>>(), [80, 32]);
        assert_eq!(tiles(&bytes[..bytes.len() - 1]), None);
        assert_eq!(tiles(b"HWT2\0\0\0\0"), None);
        assert_eq!(whole_events(b": live\n\ndata: 1\n\ndata"), 17);
        assert_eq!(whole_events(b"data: 1\n"), 0);
    }
}
