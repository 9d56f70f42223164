//! What a server says, for a terminal: on one line, and nothing in it that a terminal would obey.

/// `text` with its blanks and line breaks as single blanks, and what isn't printed as its number; of that no more than
/// so many characters.
pub(crate) fn legible(text: &str, chars_max: usize) -> String {
    let mut out = String::new();
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        for c in word.chars() {
            match c {
                '\'' | '"' | '\\' => out.push(c),
                c => out.extend(c.escape_debug()),
            }
        }
    }
    match out.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &out[..end]),
        None => out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        for (said, shown) in [
            ("  It's\r\n\tyour \"code\"? ", "It's your \"code\"?"),
            ("a\u{1b}[2Jb\u{7}", r"a\u{1b}[2Jb\u{7}"),
            ("x\u{202e}y\u{9b}z", r"x\u{202e}y\u{9b}z"),
            (r"DOMAIN\me", r"DOMAIN\me"),
            ("Größe", "Größe"),
        ] {
            assert_eq!(legible(said, 100), shown);
        }
        assert_eq!(legible(&"ä".repeat(200), 100), format!("{}…", "ä".repeat(100)));
    }
}
