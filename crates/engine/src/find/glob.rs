//! Patterns on bytes as shells have them: `*`, `?`, `[a-z]`, `[!a-z]`, `\` to take a character literally; `**` crosses
//! slashes, the others don't. A `?` or a class stands for one UTF-8 character, or one byte where the text is no UTF-8.
//!
//! Matching takes at most the product of both lengths: only the last `*` and the last `**` ever need to be gone back
//! to, since what an earlier one could take more, the later one can give up.

use crate::{Error, Result};

/// A compiled pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    tokens: Vec<Token>,
    ignore_case: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`
    Any,
    /// A class: whether it is negated, and its ranges.
    Class(bool, Vec<(u32, u32)>),
    /// `*`
    Star,
    /// `**`
    Stars,
    /// `**/` where a name begins: nothing, or whole folders.
    Folders,
}

impl Glob {
    /// Compile a pattern.
    ///
    /// # Errors
    /// A class or an escape that does not end.
    pub fn new(pattern: &[u8], ignore_case: bool) -> Result<Self> {
        let bad = |what| {
            let text = String::from_utf8_lossy(pattern);
            Error::Pattern(format!("the pattern '{text}' {what}"))
        };
        let mut tokens = Vec::new();
        let mut rest = pattern;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            tokens.push(match byte {
                b'*' => {
                    let more = rest.iter().take_while(|b| **b == b'*').count();
                    rest = &rest[more..];
                    // `a/**/b` fits `a/b` as well.
                    if more > 0
                        && rest.first() == Some(&b'/')
                        && matches!(tokens.last(), None | Some(Token::Byte(b'/')))
                    {
                        rest = &rest[1..];
                        Token::Folders
                    } else if more > 0 {
                        Token::Stars
                    } else {
                        Token::Star
                    }
                }
                b'?' => Token::Any,
                b'[' => {
                    let (class, after) = class(rest).ok_or_else(|| bad("has a '[' without its ']'"))?;
                    rest = after;
                    class
                }
                b'\\' => {
                    let (literal, after) = rest.split_first().ok_or_else(|| bad("ends with a single '\\'"))?;
                    rest = after;
                    Token::Byte(*literal)
                }
                literal => Token::Byte(*literal),
            });
        }
        if ignore_case {
            for token in &mut tokens {
                if let Token::Byte(b) = token {
                    b.make_ascii_lowercase();
                }
            }
        }
        Ok(Glob { tokens, ignore_case })
    }

    /// Whether all of `text` fits.
    pub fn matches(&self, text: &[u8]) -> bool {
        let (mut token, mut at) = (0, 0);
        let (mut star, mut stars) = (None::<(usize, usize)>, None::<(usize, usize)>);
        loop {
            let fits = match self.tokens.get(token) {
                None => (at == text.len()).then_some(at),
                Some(Token::Star) => {
                    star = Some((token, at));
                    Some(at)
                }
                Some(Token::Stars | Token::Folders) => {
                    (star, stars) = (None, Some((token, at)));
                    Some(at)
                }
                Some(token) => self.one(token, &text[at..]).map(|len| at + len),
            };
            if let Some(next) = fits {
                if token == self.tokens.len() {
                    return true;
                }
                (token, at) = (token + 1, next);
                continue;
            }
            // The last `*` takes one more byte, unless that is a slash; else the last `**` does.
            (token, at) = match (star, stars) {
                (Some((t, a)), _) if a < text.len() && text[a] != b'/' => {
                    star = Some((t, a + 1));
                    (t + 1, a + 1)
                }
                (_, Some((t, a))) => {
                    let more = match self.tokens[t] {
                        Token::Folders => text[a..].iter().position(|b| *b == b'/').map(|slash| slash + 1),
                        _ => (a < text.len()).then_some(1),
                    };
                    let Some(more) = more else { return false };
                    (star, stars) = (None, Some((t, a + more)));
                    (t + 1, a + more)
                }
                _ => return false,
            };
        }
    }

    /// How many bytes of `text` one token takes.
    fn one(&self, token: &Token, text: &[u8]) -> Option<usize> {
        let first = *text.first()?;
        match token {
            Token::Byte(b) => (*b == if self.ignore_case { first.to_ascii_lowercase() } else { first }).then_some(1),
            Token::Any => (first != b'/').then(|| character(text).1),
            Token::Class(negated, ranges) => {
                let (c, len) = character(text);
                let within = |c| ranges.iter().any(|(low, high)| (*low..=*high).contains(&c));
                let other_case = |c: u32| {
                    u8::try_from(c).map_or(c, |b| u32::from(if b.is_ascii_alphabetic() { b ^ 0x20 } else { b }))
                };
                let hit = within(c) || self.ignore_case && within(other_case(c));
                (first != b'/' && hit != *negated).then_some(len)
            }
            Token::Star | Token::Stars | Token::Folders => None,
        }
    }
}

/// What stands up to the `]` of a class, and what follows.
fn class(mut rest: &[u8]) -> Option<(Token, &[u8])> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    if negated {
        rest = &rest[1..];
    }
    let mut ranges = Vec::new();
    // A `]` that comes first stands for itself.
    while rest.first()? != &b']' || ranges.is_empty() {
        let low = literal(&mut rest)?;
        let high = match rest {
            [b'-', next, ..] if *next != b']' => {
                rest = &rest[1..];
                literal(&mut rest)?
            }
            _ => low,
        };
        ranges.push((low, high));
    }
    Some((Token::Class(negated, ranges), &rest[1..]))
}

fn literal(rest: &mut &[u8]) -> Option<u32> {
    if rest.first()? == &b'\\' {
        *rest = &rest[1..];
    }
    if rest.is_empty() {
        return None;
    }
    let (c, len) = character(rest);
    *rest = &rest[len..];
    Some(c)
}

/// The first character and its length; a byte that begins none counts as one beyond all characters.
fn character(text: &[u8]) -> (u32, usize) {
    let valid = text.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    match (valid, text.first()) {
        (Some(c), _) => (u32::from(c), c.len_utf8()),
        (None, Some(b)) => (0x11_0000 + u32::from(*b), 1),
        (None, None) => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fits(pattern: &str, text: &str) -> bool {
        Glob::new(pattern.as_bytes(), false).unwrap().matches(text.as_bytes())
    }

    #[test]
    fn patterns() {
        for (pattern, yes, no) in [
            ("*.rs", &["a.rs", ".rs"][..], &["a.rsx", "d/a.rs"][..]),
            ("a?c", &["abc", "aéc"], &["ac", "a/c", "abbc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "x", "aax"]),
            ("[!a-c]x", &["dx", "éx"], &["ax", "/x"]),
            ("[]]", &["]"], &["[", ""]),
            ("[a-]", &["-", "a"], &["b"]),
            ("\\*", &["*"], &["a"]),
            ("/home/*/x", &["/home/u/x"], &["/home/u/v/x", "/home/x"]),
            (
                "/home/**/x",
                &["/home/u/x", "/home/u/v/x", "/home/x"],
                &["/home/u/xy", "/homes/x", "/home/ax", "/home/u/ax"],
            ),
            ("**/x", &["/x", "/a/b/x", "x"], &["/a/y", "/a/bx", "ax"]),
            ("/a/**/b/**/c", &["/a/b/c", "/a/x/b/y/z/c", "/a/b/b/c"], &["/a/xb/c", "/a/b/xc", "/a/c"]),
            ("/a/**", &["/a/", "/a/b/c"], &["/a", "/b/a/c"]),
            ("", &[""], &["a"]),
            ("*", &["", "abc"], &["a/b"]),
        ] {
            yes.iter().for_each(|text| assert!(fits(pattern, text), "{pattern} {text}"));
            no.iter().for_each(|text| assert!(!fits(pattern, text), "{pattern} {text}"));
        }
        assert!(Glob::new(b"*.J[p-q]g", true).unwrap().matches(b"x.jPG"));
        assert!(Glob::new(b"\xff?", false).unwrap().matches(b"\xff\xfe"));
        for bad in ["[a", "[", "a\\", "[!", "[\\"] {
            assert!(Glob::new(bad.as_bytes(), false).is_err(), "{bad}");
        }
    }

    #[test]
    fn many_stars_take_no_more_than_their_product() {
        let start = std::time::Instant::now();
        assert!(!fits(&"**a*".repeat(60), &("a".repeat(59) + &"b".repeat(4000))));
        assert!(start.elapsed().as_secs() < 2);
    }

    /// What a pattern means, said as plainly as can be.
    fn naive(tokens: &[Token], text: &[u8], glob: &Glob) -> bool {
        match tokens.split_first() {
            None => text.is_empty(),
            Some((Token::Star, rest)) => {
                naive(rest, text, glob) || text.first().is_some_and(|b| *b != b'/') && naive(tokens, &text[1..], glob)
            }
            Some((Token::Folders, rest)) => {
                let ends = text.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at + 1);
                [0].into_iter().chain(ends).any(|end| naive(rest, &text[end..], glob))
            }
            Some((Token::Stars, rest)) => {
                naive(rest, text, glob) || !text.is_empty() && naive(tokens, &text[1..], glob)
            }
            Some((one, rest)) => glob.one(one, text).is_some_and(|len| naive(rest, &text[len..], glob)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn agrees_with_the_plain_meaning(pattern in "[ab/*?]{0,9}", text in "[ab/]{0,10}") {
            let glob = Glob::new(pattern.as_bytes(), false).unwrap();
            prop_assert_eq!(glob.matches(text.as_bytes()), naive(&glob.tokens, text.as_bytes(), &glob));
        }

        #[test]
        fn noise_never_panics(pattern in proptest::collection::vec(any::<u8>(), 0..20), text in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(glob) = Glob::new(&pattern, true) {
                glob.matches(&text);
            }
        }
    }
}
