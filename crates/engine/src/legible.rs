//! Words that somebody else chose, for people to read.

/// Whether a character would steer a terminal, or turn the direction of what stands behind it: words could pass for
/// others.
pub fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Such words without anything that would steer a terminal, begin a line, or turn the direction of what follows:
/// whoever made a snapshot or registered a session chose its words.
pub(crate) fn legible(text: impl AsRef<[u8]>) -> String {
    let escape = |c: char| if steers(c) { c.escape_default().to_string() } else { c.to_string() };
    String::from_utf8_lossy(text.as_ref()).chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(legible("höst 1"), "höst 1");
        assert_eq!(legible("a\x1b]0;x\x07\nhint: b\u{202e}c"), "a\\u{1b}]0;x\\u{7}\\nhint: b\\u{202e}c");
        assert_eq!(legible([0x61, 0xff]), "a\u{fffd}");
    }
}
