//! Keys of objects, and the group of a node.
//!
//! Invariants: the head of a group is the only object that is ever replaced. The key of a pack has
//! the epoch under which it was created. Format: docs/format/bucket.md.

use headwater_codec::checksum::crc32c_append;

/// The key of the head of a group.
#[must_use]
pub fn head_key(group: u32) -> String {
    format!("group/{group:08x}/head")
}

/// Prefix of the keys of all packs of a group.
#[must_use]
pub fn packs_prefix(group: u32) -> String {
    format!("group/{group:08x}/pack/")
}

/// The key of a pack.
#[must_use]
pub fn pack_key(group: u32, epoch: u64, id: u64) -> String {
    format!("group/{group:08x}/pack/{epoch:016x}-{id:016x}")
}

/// Epoch and number of a pack, from its key; `None` if the key is not a pack key of the group.
#[must_use]
pub fn pack_of_key(group: u32, key: &str) -> Option<(u64, u64)> {
    let rest = key.strip_prefix(&packs_prefix(group))?;
    let (epoch, id) = rest.split_once('-')?;
    let number = |text: &str| {
        let is_lower_hex = text.len() == 16
            && (text.bytes()).all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        u64::from_str_radix(text, 16).ok().filter(|_| is_lower_hex)
    };
    Some((number(epoch)?, number(id)?))
}

/// Weight of a node for a group: the same on every node.
fn weight(node: u64, group: u32) -> u64 {
    let low = crc32c_append(crc32c_append(0, &node.to_le_bytes()), &group.to_le_bytes());
    let high = crc32c_append(low, &node.to_be_bytes());
    // CRCs of similar inputs are similar in a regular way; the mixing removes this.
    let mut x = (u64::from(high) << 32) | u64::from(low);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Node to which a group belongs, of the live nodes (rendezvous hashing): when a node joins or
/// leaves, only its own groups move. `None` without nodes.
#[must_use]
pub fn node_of(group: u32, live: &[u64]) -> Option<u64> {
    let by_weight = |node: &&u64| (weight(**node, group), **node);
    live.iter().max_by_key(by_weight).copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn keys_of_packs_are_read_back_and_others_are_none() {
        let key = pack_key(3, 7, u64::MAX);
        assert_eq!(pack_of_key(3, &key), Some((7, u64::MAX)));
        assert_eq!(pack_of_key(4, &key), None);
        let strange = [
            "group/00000003/pack/7-1",
            "group/00000003/head",
            "group/00000003/pack/+000000000000007-000000000000000a",
            "group/00000003/pack/000000000000000A-000000000000000a",
        ];
        for key in strange {
            assert_eq!(pack_of_key(3, key), None, "{key}");
        }
    }

    #[test]
    fn a_node_that_goes_moves_only_its_own_groups_and_shares_are_about_equal() {
        let nodes = [11, 22, 33, 44, 55];
        let mut had = [0_u32; 5];
        for group in 0..1000 {
            let owner = node_of(group, &nodes).unwrap();
            had[nodes.iter().position(|n| *n == owner).unwrap()] += 1;
            let without: Vec<u64> = nodes.iter().copied().filter(|n| *n != 33).collect();
            let then = node_of(group, &without).unwrap();
            assert!(then == owner || owner == 33);
        }
        assert!(had.iter().all(|n| (120..=280).contains(n)), "{had:?}");
        assert_eq!(node_of(1, &[]), None);
    }
}
