//! The little XML that S3 speaks: elements and text, no attributes that matter. A reader, not a validator: what isn't
//! found isn't there.

/// What stands in the first element of this name, as it stands there.
pub(super) fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    elements(xml, name).next()
}

/// What stands in each element of this name that is not within another one of it, as it stands there.
pub(super) fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, inner, after) = next(rest, name)?;
        rest = after;
        Some(inner)
    })
}

/// What stands in the elements of several names, in the order in which they stand there, each with its name's number.
pub(super) fn any_of<'a>(xml: &'a str, names: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
    // Where the search for each goes on, and what it has found.
    let mut found: Vec<_> = names.iter().map(|name| next(xml, name)).collect();
    std::iter::from_fn(move || {
        let left = |of: &Option<(&str, &str, &str)>| of.map(|(from, ..)| from.len());
        let which = (0..names.len()).max_by_key(|which| left(&found[*which]))?;
        let (_, inner, after) = found[which]?;
        found[which] = next(after, names[which]);
        Some((which, inner))
    })
}

/// The next element of a name: the text from it on, what is in it, and what comes after it.
fn next<'a>(xml: &'a str, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let mut rest = xml;
    loop {
        let from = &rest[rest.find(&open)?..];
        let after = &from[open.len()..];
        // Another name may begin with this one.
        if !after.starts_with(['>', ' ', '/', '\t', '\n', '\r']) {
            rest = after;
            continue;
        }
        let end = after.find('>')?;
        if after[..end].ends_with('/') {
            return Some((from, "", &after[end + 1..]));
        }
        let inner = &after[end + 1..];
        let until = inner.find(&close)?;
        return Some((from, &inner[..until], &inner[until + close.len()..]));
    }
}

/// The text in the first element of this name.
pub(super) fn text(xml: &str, name: &str) -> Option<String> {
    element(xml, name).map(unescape)
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let after = &rest[at..];
        let end = after.find(';').filter(|end| *end <= 10);
        let known = end.and_then(|end| {
            let entity = &after[1..end];
            let number = entity.strip_prefix('#').and_then(|number| match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => number.parse().ok(),
            });
            let character = match entity {
                "amp" => Some('&'),
                "lt" => Some('<'),
                "gt" => Some('>'),
                "quot" => Some('"'),
                "apos" => Some('\''),
                _ => number.and_then(char::from_u32),
            };
            character.map(|character| (character, end))
        });
        match known {
            Some((character, end)) => {
                out.push(character);
                rest = &after[end + 1..];
            }
            None => {
                out.push('&');
                rest = &after[1..];
            }
        }
    }
    out + rest
}

/// The other way.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_and_errors() {
        let xml = "<?xml version=\"1.0\"?>\n<R xmlns=\"u\"><Key>no</Key><C><Key>a&amp;b</Key><Size>1</Size></C><Contents/>\
                   <C ><Key>&quot;x&#65;&#x42;&bogus;&</Key></C><KeyCount>2</KeyCount></R>";
        let keys: Vec<_> = elements(xml, "C").map(|c| text(c, "Key").unwrap()).collect();
        assert_eq!(keys, ["a&b", "\"xAB&bogus;&"]);
        assert_eq!(text(xml, "KeyCount").as_deref(), Some("2"));
        assert_eq!((element(xml, "Contents"), element(xml, "K"), element(xml, "Size")), (Some(""), None, Some("1")));
        assert_eq!(unescape(&escape("<a>&\"b\"")), "<a>&\"b\"");
    }

    #[test]
    fn elements_of_several_names_come_in_their_order() {
        let xml = "<R><A>1</A><B>2</B><Ax>-</Ax><B/><A>3</A><A>4</A><B>5</B></R>";
        let found: Vec<_> = any_of(xml, &["A", "B", "C"]).collect();
        assert_eq!(found, [(0, "1"), (1, "2"), (1, ""), (0, "3"), (0, "4"), (1, "5")]);
        assert_eq!(any_of("<R></R>", &["A"]).next(), None);
    }

    #[test]
    fn whatever_comes_is_read_to_some_end() {
        for odd in
            ["", "<", "<C", "<C>", "<C><C>", "</C>", "<C/", "not xml at all", "<C>&#xFFFFFFFF;</C>", "<C>&ü;</C>"]
        {
            let _ = elements(odd, "C").map(unescape).count();
        }
    }
}
