//! What a server says instead of doing it, and what that means: for whoever called, and for the user.

use super::http::Response;
use super::settings::is_region;
use super::xml;
use crate::Kind;
use crate::legible::legible;

/// An answer that is no success.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub status: u16,
    /// S3's word for it; empty if there is none, as in every answer to a HEAD.
    pub code: String,
    /// It bears the id that S3 gives to each request: not what some proxy on the way says of itself.
    is_by_s3: bool,
    /// The server's explanation.
    words: String,
    /// Where the bucket is, if that was the trouble.
    pub region: Option<String>,
    /// The server's clock.
    pub date: Option<String>,
    /// How long to wait, in seconds.
    pub retry_after: Option<u64>,
}

/// Longer explanations are cut.
const WORDS_MAX: usize = 300;

impl Said {
    pub(super) fn read(response: &Response) -> Self {
        let text = String::from_utf8_lossy(&response.body);
        let error = xml::element(&text, "Error").unwrap_or_default();
        let shown = |words: String| legible(words.trim().trim_end_matches('.'), WORDS_MAX);
        let field = |name: &str| xml::text(error, name).map(shown).unwrap_or_default();
        let header = |name: &str| response.header(name).map(str::to_owned);
        let code = field("Code");
        Said {
            status: if response.status < 300 { late(&code).unwrap_or(response.status) } else { response.status },
            code,
            is_by_s3: response.header("x-amz-request-id").is_some(),
            words: field("Message"),
            region: header("x-amz-bucket-region").or_else(|| Some(field("Region"))).filter(|name| is_region(name)),
            date: header("date"),
            retry_after: header("retry-after").and_then(|seconds| seconds.parse().ok()),
        }
    }

    /// No XML of S3's in it, where there should be.
    fn is_foreign(&self, is_head: bool) -> bool {
        self.code.is_empty() && !is_head
    }

    /// There is no such object, and it is S3 that says so. A proxy that finds no server behind it, for a while, says
    /// 404 of everything.
    pub(super) fn is_missing(&self) -> bool {
        let said_so = match self.code.as_str() {
            "" => self.is_by_s3,
            code => !matches!(code, "NoSuchBucket" | "NoSuchUpload"),
        };
        self.status == 404 && said_so
    }

    /// The name is taken: If-None-Match was honoured.
    pub(super) fn is_taken(&self) -> bool {
        self.status == 412
    }

    /// It doesn't know If-None-Match, and says so.
    pub(super) fn is_unknown_condition(&self) -> bool {
        self.status == 501 || matches!(self.code.as_str(), "NotImplemented" | "NotSupported")
    }

    /// The keys have come to their end.
    pub(super) fn is_expired(&self) -> bool {
        matches!(self.code.as_str(), "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "InvalidToken")
    }

    /// They have ended, or have been replaced: there may be others by now.
    pub(super) fn wants_other_keys(&self) -> bool {
        self.is_expired() || self.code == "InvalidAccessKeyId"
    }

    /// The bucket has to be a part of the host's name. In the words of Alibaba's, Tencent's, Huawei's and Volcengine's
    /// services.
    pub(super) fn wants_bucket_in_host(&self) -> bool {
        matches!(
            self.code.as_str(),
            "SecondLevelDomainForbidden"
                | "PathStyleDomainForbidden"
                | "VirtualHostDomainRequired"
                | "InvalidPathAccess"
        )
    }

    pub(super) fn is_skewed(&self) -> bool {
        self.code == "RequestTimeTooSkewed"
    }

    /// Whether it may pass.
    pub(super) fn passes(&self) -> bool {
        let by_code = matches!(
            self.code.as_str(),
            "RequestTimeout"
                | "RequestTimeoutException"
                | "InternalError"
                | "ServiceUnavailable"
                | "OperationAborted"
                | "ConditionalRequestConflict"
                | "BadDigest"
                | "XAmzContentSHA256Mismatch"
                | "IncompleteBody"
        );
        // Whoever pays for haste has to be told that there is none to be had.
        if self.code == "GlacierExpeditedRetrievalNotAvailable" {
            return false;
        }
        // Of a server's troubles all but "I can't do such a thing", "not by this protocol" and "there is no room":
        // proxies have numbers of their own.
        let by_status = matches!(self.status, 408 | 429 | 500..=599) && !matches!(self.status, 501 | 505 | 507);
        by_code || self.is_throttled() || by_status && !self.is_full()
    }

    /// It is asked too often, or too much. Some call that a quota.
    fn is_throttled(&self) -> bool {
        let by_code = matches!(
            self.code.as_str(),
            "SlowDown"
                | "TooManyRequests"
                | "RequestLimitExceeded"
                | "RequestThrottled"
                | "RequestThrottledException"
                | "BandwidthLimitExceeded"
                | "LimitExceededException"
                | "PriorRequestNotComplete"
        );
        by_code || self.code.starts_with("Throttling") || self.status == 429
    }

    /// A proxy that finds no server behind it says so in its own words. (What it refuses for good, a method or a
    /// length, it does as well: that is not for this.)
    pub(super) fn is_by_proxy(&self) -> bool {
        self.status == 404 && self.code.is_empty() && !self.is_by_s3
    }

    /// Whatever is asked for by these keys is refused, and not what is asked.
    pub(super) fn is_of_account(&self) -> bool {
        let by_code = matches!(
            self.code.as_str(),
            "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "RequestExpired"
                | "AccountProblem"
                | "AllAccessDisabled"
                | "NotSignedUp"
        );
        by_code || self.is_expired() || self.is_skewed()
    }

    /// S3 has spoken.
    pub(super) fn is_by_s3(&self) -> bool {
        self.is_by_s3 || !self.code.is_empty()
    }

    fn is_full(&self) -> bool {
        if self.is_throttled() {
            return false;
        }
        let words = self.words.to_ascii_lowercase();
        let by_words = ["quota", "no space", "disk full", "storage full", "insufficient storage"]
            .iter()
            .any(|w| words.contains(w));
        self.status == 507 || self.code.contains("Quota") || self.code.contains("StorageFull") || by_words
    }

    fn is_about_locks(&self) -> bool {
        let words = self.words.to_ascii_lowercase();
        let by_words = ["object lock", "objectlock"].iter().any(|w| words.contains(w)) && !self.wants_sum();
        self.code.starts_with("ObjectLock") || by_words
    }

    /// The bucket locks whatever comes by a rule of its own, and so takes nothing without a sum.
    pub(super) fn wants_sum(&self) -> bool {
        self.status == 400 && self.words.to_ascii_lowercase().contains("content-md5")
    }

    /// What can be done about it, and the words for it. `action` is the one of S3 that was asked for, `keys` where the
    /// keys come from, `bucket` and `endpoint` where.
    pub(super) fn judge(&self, action: &str, keys: &str, bucket: &str, endpoint: &str) -> (Kind, String) {
        let told = match (self.words.is_empty(), self.code.is_empty()) {
            (false, false) => format!(" ({}: {})", self.code, self.words),
            (true, false) => format!(" ({})", self.code),
            (false, true) => format!(" ({})", self.words),
            (true, true) => format!(" (status {})", self.status),
        };
        if self.is_full() {
            return (Kind::Full, format!("the storage takes no more{told}"));
        }
        let is_head = action == "HeadObject";
        let refused = |words: String| (Kind::Refused, words);
        match self.code.as_str() {
            "NoSuchBucket" => (Kind::Missing, format!("there is no bucket '{bucket}' at {endpoint}")),
            "InvalidBucketName" => {
                refused(format!("the server says that '{bucket}' is not a valid name of a bucket{told}"))
            }
            "InvalidAccessKeyId" => refused(format!(
                "{endpoint} doesn't know the access key of {keys}: check whether it is the one for this server"
            )),
            "SignatureDoesNotMatch" if self.words.to_ascii_lowercase().contains("region") => refused(format!(
                "requests to {endpoint} are signed for another region than its own{told}: set AWS_REGION to that"
            )),
            "SignatureDoesNotMatch" => {
                refused(format!("the secret key of {keys} doesn't belong to its access key{told}: enter both again"))
            }
            "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => {
                refused(format!("the session of the credentials of {keys} has ended: log in again, or get new ones"))
            }
            "InvalidToken" => refused(format!("the session token of {keys} is not from this server{told}")),
            "RequestTimeTooSkewed" => refused(
                "this machine's clock is wrong, and the server's time can't be used instead: set the clock".to_owned(),
            ),
            "RequestExpired" => {
                refused("the server's clock and this machine's are too far apart: set the clock".to_owned())
            }
            "InvalidObjectState" => {
                (Kind::Frozen, format!("it is in cold storage, and has to be brought back before it can be read{told}"))
            }
            "GlacierExpeditedRetrievalNotAvailable" => {
                refused(format!("the provider has no room for expedited retrievals now{told}: take '--thaw standard'"))
            }
            "InvalidRequest" | "InvalidBucketState" | "ObjectLockConfigurationNotFoundError"
                if self.is_about_locks() =>
            {
                refused(format!(
                    "the bucket was made without object lock{told}: make one with it, or leave --object-lock out"
                ))
            }
            "AccountProblem" | "AllAccessDisabled" | "NotSignedUp" => {
                refused(format!("the provider has closed the account{told}: ask it why"))
            }
            "PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException" => refused(
                format!("the bucket is in another region{told}: set AWS_REGION to it, or --endpoint to its server"),
            ),
            _ if self.wants_bucket_in_host() => refused(format!(
                "{endpoint} takes a bucket only as a part of the host's name{told}, which '{bucket}' can't be there: give the \
                 server by its name, not by an address, and take a bucket without dots, of at most 63 characters"
            )),
            "MethodNotAllowed" if self.status == 405 => {
                refused(format!("the server doesn't allow {action} there, because of a lock perhaps{told}"))
            }
            _ if self.status == 407 => refused(
                "the proxy wants a user and a password: http://USER:PASSWORD@HOST:PORT in HTTP_PROXY".to_owned(),
            ),
            _ if self.is_throttled() => (Kind::Transient, format!("the server is asked for more than it allows{told}")),
            _ if self.passes() => (Kind::Transient, format!("the server can't do it now{told}")),
            _ if self.status == 403 || self.status == 401 => match self.is_foreign(is_head) {
                // What isn't there is told only to those who may list.
                false if matches!(action, "GetObject" | "HeadObject") => refused(format!(
                    "the credentials of {keys} don't allow {action} on it{told}, or it isn't there, and they don't allow ListBucket"
                )),
                false => refused(format!("the credentials of {keys} don't allow {action} on it{told}")),
                true => refused(format!("{endpoint} refuses it, and doesn't say why as S3 would{told}")),
            },
            _ if self.is_missing() => (Kind::Missing, "there is no such object".to_owned()),
            _ if self.is_foreign(is_head) => {
                (Kind::Io, format!("what answers at {endpoint} is no S3 server, or its address lacks something{told}"))
            }
            _ => (Kind::Io, format!("the server doesn't do {action}{told}")),
        }
    }
}

/// The status that an error would have come with, had it been known before the answer was begun.
fn late(code: &str) -> Option<u16> {
    Some(match code {
        "AccessDenied" => 403,
        "NoSuchBucket" | "NoSuchKey" | "NoSuchUpload" => 404,
        "ConditionalRequestConflict" | "OperationAborted" => 409,
        "PreconditionFailed" => 412,
        "InternalError" => 500,
        "NotImplemented" => 501,
        "ServiceUnavailable" | "SlowDown" => 503,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: u16, code: &str, message: &str) -> Said {
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>");
        Said::read(&Response::made(status, &[], body.as_bytes()))
    }

    #[test]
    fn each_has_a_kind_and_says_what_to_do() {
        for (status, code, message, kind, part) in [
            (404, "NoSuchBucket", "x", Kind::Missing, "no bucket 'buc' at http://h"),
            (404, "NoSuchKey", "x", Kind::Missing, "no such object"),
            (403, "InvalidAccessKeyId", "x", Kind::Refused, "doesn't know the access key of the environment"),
            (403, "SignatureDoesNotMatch", "x", Kind::Refused, "enter both again"),
            (
                403,
                "SignatureDoesNotMatch",
                "Credential should be scoped to a valid Region, not us-east-1",
                Kind::Refused,
                "set AWS_REGION",
            ),
            (400, "ExpiredToken", "x", Kind::Refused, "log in again"),
            (403, "RequestTimeTooSkewed", "x", Kind::Refused, "set the clock"),
            (403, "AccessDenied", "x", Kind::Refused, "don't allow PutObject"),
            (403, "QuotaExceeded", "x", Kind::Full, "takes no more (QuotaExceeded"),
            (403, "AccessDenied", "Bucket size quota is reached.", Kind::Full, "quota is reached)"),
            (507, "XMinioStorageFull", "x", Kind::Full, "takes no more"),
            (503, "SlowDown", "Reduce your request rate.", Kind::Transient, "(SlowDown: Reduce your request rate)"),
            (429, "TooManyRequests", "Rate quota exceeded", Kind::Transient, "more than it allows (TooManyRequests"),
            (503, "SlowDown", "Request quota exceeded", Kind::Transient, "more than it allows"),
            (400, "ThrottlingException", "x", Kind::Transient, "more than it allows"),
            (503, "ServiceUnavailable", "Storage quota exceeded", Kind::Full, "takes no more"),
            (500, "InternalError", "x", Kind::Transient, "can't do it now"),
            (409, "ConditionalRequestConflict", "x", Kind::Transient, "can't do it now"),
            (400, "BadDigest", "x", Kind::Transient, "can't do it now"),
            (403, "InvalidObjectState", "x", Kind::Frozen, "cold storage"),
            (301, "PermanentRedirect", "x", Kind::Refused, "AWS_REGION"),
            (
                400,
                "InvalidRequest",
                "Bucket is missing Object Lock Configuration",
                Kind::Refused,
                "without object lock",
            ),
            (400, "InvalidRequest", "Bucket is missing ObjectLockConfiguration", Kind::Refused, "without object lock"),
            (400, "InvalidArgument", "x", Kind::Io, "doesn't do PutObject"),
        ] {
            let (found, words) = said(status, code, message).judge("PutObject", "the environment", "buc", "http://h");
            assert_eq!(found, kind, "{code}: {words}");
            assert!(words.contains(part), "{code}: {words}");
        }
    }

    #[test]
    fn an_error_within_a_success_is_what_its_code_says() {
        for (code, kind) in [
            ("AccessDenied", Kind::Refused),
            ("NoSuchKey", Kind::Missing),
            ("SlowDown", Kind::Transient),
            ("InternalError", Kind::Transient),
            ("InvalidPart", Kind::Io),
        ] {
            let said = said(200, code, "x");
            let (found, words) = said.judge("CompleteMultipartUpload", "the environment", "b", "http://h");
            assert_eq!((found, said.passes()), (kind, kind == Kind::Transient), "{code}: {words}");
        }
        assert!(
            said(200, "PreconditionFailed", "x").is_taken() && said(200, "NotImplemented", "x").is_unknown_condition()
        );
    }

    #[test]
    fn what_is_no_s3_is_told_so() {
        for (status, kind) in [(404, Kind::Io), (403, Kind::Refused), (405, Kind::Io), (502, Kind::Transient)] {
            let said = Said::read(&Response::made(status, &[], b"<html><body>nginx</body></html>"));
            let (found, words) = said.judge("GetObject", "x", "b", "http://h");
            assert_eq!(found, kind, "{words}");
        }
        // A HEAD has no body to say anything in.
        for (headers, kind) in [(&[("x-amz-request-id", "17")][..], Kind::Missing), (&[], Kind::Io)] {
            let said = Said::read(&Response::made(404, headers, b""));
            assert_eq!(said.is_missing(), kind == Kind::Missing);
            assert_eq!(said.judge("HeadObject", "x", "b", "http://h").0, kind);
        }
    }

    #[test]
    fn a_region_is_a_part_of_a_hosts_name() {
        let region = |name: &str| Said::read(&Response::made(400, &[("x-amz-bucket-region", name)], b"")).region;
        assert_eq!(region("eu-central-1").as_deref(), Some("eu-central-1"));
        for none in ["", "x.y", "x/y", "a b", &"x".repeat(64)] {
            assert_eq!(region(none), None, "{none}");
        }
    }

    #[test]
    fn words_from_afar_stay_on_one_line_and_steer_no_terminal() {
        let long = format!("a\nb\u{1b}[31m\u{202e}{}", "x".repeat(1000));
        let (_, words) = said(400, "Odd", &long).judge("GetObject", "x", "b", "http://h");
        assert!(!words.contains(|c: char| c.is_control() || c == '\u{202e}') && words.len() < 400, "{words}");
    }
}
