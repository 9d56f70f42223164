//! Tokens of ssh_config(5), `%h` and the like: what stands for what.

/// `text` with each token as `meaning` has it. One that means nothing could only lead to the wrong place.
pub(in crate::sftp::ssh) fn expand(text: &str, meaning: impl Fn(char) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('%') => out.push('%'),
            Some(token) => match meaning(token) {
                Some(meant) => out.push_str(&meant),
                None => return Err(format!("the token '%{}' means nothing here", token.escape_debug())),
            },
            None => return Err("a '%' at the end: '%%' is one that stands for itself".into()),
        }
    }
    Ok(out)
}
