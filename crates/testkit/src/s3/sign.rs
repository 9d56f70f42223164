//! Signatures, from the server's side: AWS Signature Version 4, and dates.

use aws_lc_rs::{digest, hmac};

use super::http::Request;

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// What a request's Authorization header says.
pub(super) struct Claimed<'a> {
    pub key: &'a str,
    pub date: &'a str,
    pub region: &'a str,
    names: &'a str,
    signature: &'a str,
}

pub(super) fn claimed(request: &Request) -> Option<Claimed<'_>> {
    let text = request.headers.get("authorization")?.strip_prefix("AWS4-HMAC-SHA256 ")?;
    let field = |name: &str| text.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
    let mut scope = field("Credential")?.split('/');
    let (key, date, region) = (scope.next()?, scope.next()?, scope.next()?);
    let rest = (scope.next()?, scope.next()?);
    (rest == ("s3", "aws4_request")).then_some(())?;
    Some(Claimed { key, date, region, names: field("SignedHeaders")?, signature: field("Signature")? })
}

/// Whether the signature is right, and made with everything that matters.
pub(super) fn is_right(request: &Request, of: &Claimed<'_>, secret: &str) -> bool {
    let names: Vec<&str> = of.names.split(';').collect();
    let must = |name: &&String| name.starts_with("x-amz-") || matches!(name.as_str(), "host" | "if-none-match");
    if !request.headers.keys().filter(must).all(|name| names.contains(&name.as_str())) {
        return false;
    }
    let value = |name: &str| request.headers.get(name).map_or("", String::as_str);
    let lines: String = names.iter().map(|name| format!("{name}:{}\n", value(name))).collect();
    let mut query: Vec<&str> = request.raw_query.split('&').filter(|pair| !pair.is_empty()).collect();
    query.sort_unstable();
    let body = value("x-amz-content-sha256");
    let canonical = format!("{}\n{}\n{}\n{lines}\n{}\n{body}", request.method, request.path, query.join("&"), of.names);
    let scope = format!("{}/{}/s3/aws4_request", of.date, of.region);
    let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", value("x-amz-date"), sha256(canonical.as_bytes()));
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in [of.date, of.region, "s3", "aws4_request", &text] {
        key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
    }
    hex(&key) == of.signature
}

/// Year, month, day of days since 1970, found by counting.
fn date(mut days: i64) -> (i64, usize, i64) {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month, days + 1)
}

fn clock(at: i64) -> String {
    let of_day = at.rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// As the Date header has it.
pub(super) fn http_date(at: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let days = at.div_euclid(86_400);
    let (year, month, day) = date(days);
    format!("{}, {day:02} {} {year} {} GMT", WEEKDAYS[(days % 7) as usize], MONTHS[month], clock(at))
}

/// As XML has it.
pub(super) fn iso(at: i64) -> String {
    let (year, month, day) = date(at.div_euclid(86_400));
    format!("{year:04}-{:02}-{day:02}T{}.000Z", month + 1, clock(at))
}

/// As requests have it: to compare with what `iso` says of a time.
pub(super) fn stamp(at: i64) -> String {
    iso(at).replace(['-', ':'], "").replace(".000", "")
}
