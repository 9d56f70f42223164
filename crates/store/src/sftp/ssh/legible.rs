//! What a server says, for a terminal: on one line, and nothing in it that a terminal would obey.

/// So much of it is shown: a question is shorter.
const CHARS_MAX: usize = 1000;

/// `text` with its blanks and line breaks as single blanks, and what isn't printed as its number.
pub(super) fn legible(text: &str) -> String {
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
    match out.char_indices().nth(CHARS_MAX) {
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
            assert_eq!(legible(said), shown);
        }
        assert_eq!(legible(&"ä".repeat(5000)).chars().count(), CHARS_MAX + 1);
    }
}
