//! PostgreSQL's `numeric`: a sign, and digits to the base of ten thousand.

/// Bytes of the binary form that mean "not a number".
const NAN: u16 = 0xc000;

/// Appends the binary form of a number written in decimal, such as `-12.50`.
pub(super) fn put(text: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    let wrong = || format!("`{text}` is not a decimal number");
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if !whole
        .bytes()
        .chain(fraction.bytes())
        .all(|b| b.is_ascii_digit())
    {
        return Err(wrong());
    }
    let scale = u16::try_from(fraction.len()).map_err(|_| wrong())?;
    // Groups of four, aligned at the point.
    let lead = (4 - whole.len() % 4) % 4;
    let trail = (4 - fraction.len() % 4) % 4;
    let aligned = format!("{}{whole}{fraction}{}", "0".repeat(lead), "0".repeat(trail));
    let mut groups: Vec<u16> = aligned
        .as_bytes()
        .chunks(4)
        .map(|group| {
            group
                .iter()
                .fold(0, |n, digit| n * 10 + u16::from(digit - b'0'))
        })
        .collect();
    let mut weight = (whole.len() + lead) as i64 / 4 - 1;
    let zeros = groups.iter().take_while(|g| **g == 0).count();
    groups.drain(..zeros);
    weight -= zeros as i64;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    let weight = i16::try_from(weight).map_err(|_| wrong())?;
    let sign: u16 = if negative && !groups.is_empty() {
        0x4000
    } else {
        0
    };
    bytes.extend((groups.len() as u16).to_be_bytes());
    bytes.extend(weight.to_be_bytes());
    bytes.extend(sign.to_be_bytes());
    bytes.extend(scale.to_be_bytes());
    groups
        .iter()
        .for_each(|group| bytes.extend(group.to_be_bytes()));
    Ok(())
}

/// Reads the binary form; the number in decimal.
pub(crate) fn read(bytes: &[u8]) -> Result<String, String> {
    let mut words = bytes
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let mut next = || {
        words
            .next()
            .ok_or_else(|| "a numeric with too few bytes".to_owned())
    };
    let (count, weight, sign, scale) = (next()?, next()? as i16, next()?, next()?);
    if sign == NAN {
        return Ok("NaN".to_owned());
    }
    let groups: Vec<u16> = words.collect();
    if groups.len() != usize::from(count)
        || groups.iter().any(|g| *g > 9_999)
        || ![0, 0x4000].contains(&sign)
    {
        return Err("a numeric with inconsistent parts".to_owned());
    }
    let group = |at: i32| {
        let index = usize::try_from(i32::from(weight) - at).ok();
        index
            .and_then(|index| groups.get(index))
            .copied()
            .unwrap_or(0)
    };
    let mut text = String::new();
    if sign != 0 {
        text.push('-');
    }
    let mut whole = String::new();
    for at in (0..=i32::from(weight).max(0)).rev() {
        whole.push_str(&format!("{:04}", group(at)));
    }
    let trimmed = whole.trim_start_matches('0');
    text.push_str(if trimmed.is_empty() { "0" } else { trimmed });
    if scale > 0 {
        let mut fraction = String::new();
        let mut at = -1;
        while fraction.len() < usize::from(scale) {
            fraction.push_str(&format!("{:04}", group(at)));
            at -= 1;
        }
        fraction.truncate(scale.into());
        text.push('.');
        text.push_str(&fraction);
    }
    Ok(text)
}
