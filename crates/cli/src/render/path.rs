//! Paths for people and for scripts: names are bytes, terminals and JSON want text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drumlin_engine::legible::steers;
use serde::Serialize;
use std::borrow::Cow;

/// A path for a terminal: what is not UTF-8, or would steer the terminal, is escaped.
pub fn shown(path: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(path) {
        Ok(text) if !text.chars().any(steers) => Cow::Borrowed(text),
        Ok(text) => {
            let escape = |c: char| if steers(c) { c.escape_default().to_string() } else { c.to_string() };
            Cow::Owned(text.chars().map(escape).collect())
        }
        Err(_) => {
            let mut out = String::new();
            for chunk in path.utf8_chunks() {
                out.push_str(&shown(chunk.valid().as_bytes()));
                chunk.invalid().iter().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
            }
            Cow::Owned(out)
        }
    }
}

/// A path in JSON: `path`, and `path_b64` with its exact bytes if they are not UTF-8.
#[derive(Serialize)]
pub struct JsonPath<'a> {
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
}

impl<'a> From<&'a [u8]> for JsonPath<'a> {
    fn from(path: &'a [u8]) -> Self {
        let text = String::from_utf8_lossy(path);
        let path_b64 = matches!(text, Cow::Owned(_)).then(|| STANDARD.encode(path));
        JsonPath { path: text, path_b64 }
    }
}

/// Several paths in JSON, as `paths` of snapshots: text, and the exact bytes of those that are not UTF-8 apart.
#[derive(Serialize)]
pub struct JsonPaths<'a> {
    paths: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths_b64: Option<Vec<String>>,
}

impl<'a> From<&'a [Vec<u8>]> for JsonPaths<'a> {
    fn from(paths: &'a [Vec<u8>]) -> Self {
        let text: Vec<_> = paths.iter().map(|p| String::from_utf8_lossy(p)).collect();
        let odd = text.iter().any(|t| matches!(t, Cow::Owned(_)));
        let paths_b64 = odd.then(|| paths.iter().map(|p| STANDARD.encode(p)).collect());
        JsonPaths { paths: text, paths_b64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(shown("/häuser/x y".as_bytes()), "/häuser/x y");
        assert_eq!(shown(b"/a\x1b[2J\n"), "/a\\u{1b}[2J\\n");
        assert_eq!(shown(b"/a\xff\tb"), "/a\\xff\\tb");
        assert_eq!(shown("/gpj.\u{202e}exe.txt".as_bytes()), "/gpj.\\u{202e}exe.txt");
    }

    #[test]
    fn json_keeps_every_byte() {
        let json = |p: &[u8]| serde_json::to_string(&JsonPath::from(p)).unwrap();
        assert_eq!(json(b"/a"), r#"{"path":"/a"}"#);
        assert_eq!(json(b"/\xff"), "{\"path\":\"/\u{fffd}\",\"path_b64\":\"L/8=\"}");
        let paths = [b"/a".to_vec(), b"/\xff".to_vec()];
        let value = serde_json::to_value(JsonPaths::from(&paths[..])).unwrap();
        assert_eq!(value["paths_b64"], serde_json::json!(["L2E=", "L/8="]));
    }
}
