//! Parts of uploads that nobody is going to put together any more.
//!
//! A listing of unfinished uploads doesn't say whose they are, only since when they stand, by the server's clock. No
//! pack is under way for a week.

use super::Inner;
use super::client::Ask;
use super::{time, xml};
use crate::{Action, Cleared, Result};

/// So many seconds an upload may take.
const PATIENCE: i64 = 7 * 86_400;
/// Pages of a listing that are looked at in one run; the next one goes on.
const PAGES_MAX: usize = 10;

impl Inner {
    pub(super) fn clear(&self) -> Result<Cleared> {
        let settings = self.client.settings();
        let mut cleared = Cleared::default();
        let mut after: Option<(String, String)> = None;
        for _ in 0..PAGES_MAX {
            let mut query = vec![("uploads", ""), ("prefix", settings.base.as_str())];
            if let Some((key, id)) = &after {
                query.extend([("key-marker", key.as_str()), ("upload-id-marker", id.as_str())]);
            }
            let ask =
                Ask { name: None, query: &query, most: 16 << 20, ..Ask::new("ListBucketMultipartUploads", "GET", "") };
            let response = match self.client.call(Action::List, &ask, &mut 0)? {
                Ok(response) => response,
                // Then there is another rule for them there, or none.
                Err(said) if said.is_unknown_condition() || said.status == 405 => return Ok(cleared),
                Err(said) => return Err(self.client.refused(Action::List, &ask, &said)),
            };
            let now = response.header("date").and_then(time::http).unwrap_or_else(|| self.client.now());
            let text = String::from_utf8_lossy(&response.body);
            for upload in xml::elements(&text, "Upload") {
                let field = |name: &str| xml::text(upload, name);
                let (Some(key), Some(id)) = (field("Key"), field("UploadId")) else { continue };
                let name = key.strip_prefix(&settings.base).filter(|name| crate::name::is_name(name));
                let since = field("Initiated").and_then(|since| time::iso(&since));
                let (Some(name), Some(since)) = (name, since) else { continue };
                if now - since > PATIENCE {
                    self.abort(name, &id)?;
                    cleared.files += 1;
                }
            }
            let field = |name: &str| xml::text(&text, name).filter(|value| !value.is_empty());
            let is_cut = field("IsTruncated").is_some_and(|more| more.trim() == "true");
            after = field("NextKeyMarker").zip(field("NextUploadIdMarker")).filter(|_| is_cut);
            if after.is_none() {
                break;
            }
        }
        Ok(cleared)
    }

    /// Give up an upload, of which nothing stays.
    pub(super) fn abort(&self, name: &str, id: &str) -> Result<()> {
        let query = [("uploadId", id)];
        let ask = Ask { query: &query, ..Ask::new("AbortMultipartUpload", "DELETE", name) };
        match self.client.call(Action::Delete, &ask, &mut 0)? {
            Ok(_) => Ok(()),
            Err(said) if said.status == 404 => Ok(()),
            Err(said) => Err(self.client.refused(Action::Delete, &ask, &said)),
        }
    }

    /// Abort an upload, trying only once: whoever gives up an upload may do so because nothing answers. If it fails,
    /// somebody else clears it one day.
    pub(super) fn abort_if_possible(&self, name: &str, id: &str) {
        let query = [("uploadId", id)];
        let ask = Ask { query: &query, ..Ask::new("AbortMultipartUpload", "DELETE", name) };
        let _ = self.client.attempt(Action::Delete, &ask);
    }
}
