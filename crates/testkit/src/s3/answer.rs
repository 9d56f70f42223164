//! What the server does.

use super::http::{Request, Response, decode};

use super::state::{State, Upload};
use super::{BUCKET, Context, Instead, KEYS, now, sign};

/// Keys in a page of a listing.
const PAGE: usize = 1000;
/// How far a request's time may be from the server's, in seconds.
const SKEW_MAX: i64 = 900;

fn plain(status: u16) -> Response {
    Response { status, headers: Vec::new(), body: Vec::new() }
}

fn error(status: u16, code: &str) -> Response {
    told(status, code, &format!("the test says {code}"))
}

fn told(status: u16, code: &str, words: &str) -> Response {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{words}</Message></Error>"
    );
    Response { status, headers: vec![("content-type", "application/xml".into())], body: body.into_bytes() }
}

fn by_proxy() -> Response {
    let headers = vec![("content-type", "text/plain".into())];
    Response { status: 404, headers, body: b"404 page not found\n".to_vec() }
}

fn xml(body: String) -> Response {
    Response { status: 200, headers: vec![("content-type", "application/xml".into())], body: body.into_bytes() }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The right that a request needs, or what stands for it.
fn action(request: &Request, key: &str) -> &'static str {
    let has = |name: &str| request.query.contains_key(name);
    match (request.method.as_str(), key.is_empty()) {
        ("GET", true) if has("uploads") => "ListBucketMultipartUploads",
        ("GET", true) if has("versions") => "ListBucketVersions",
        ("GET", true) => "ListBucket",
        ("GET", false) if has("versionId") => "GetObjectVersion",
        ("GET", false) => "GetObject",
        ("HEAD", false) => "HeadObject",
        ("PUT", false) if has("partNumber") => "UploadPart",
        ("PUT", false) if has("retention") => "PutObjectRetention",
        ("PUT", false) => "PutObject",
        ("POST", false) if has("uploads") => "CreateMultipartUpload",
        ("POST", false) if has("uploadId") => "CompleteMultipartUpload",
        ("POST", false) if has("restore") => "RestoreObject",
        ("DELETE", false) if has("uploadId") => "AbortMultipartUpload",
        ("DELETE", false) => "DeleteObject",
        _ => "?",
    }
}

/// The answer, and whether it is to come through.
pub(super) fn answer(state: &mut State, request: &Request) -> (Response, Option<Instead>) {
    let path = request.path.trim_start_matches('/');
    let host = request.headers.get("host").map_or("", String::as_str);
    let within = host.split_once(".localhost").map(|(bucket, _)| bucket).filter(|_| state.habits.in_host.is_some());
    let (bucket, key) = within.map_or_else(|| path.split_once('/').unwrap_or((path, "")), |bucket| (bucket, path));
    let key = decode(key);
    let action = action(request, &key);
    state.asked.push((action, key.clone()));
    let instead = state.otherwise(action);
    let clock = now() + state.habits.clock_ahead;
    let mut response = match instead {
        Some(Instead::Refuse(status, code)) => error(status, code),
        Some(Instead::Proxy) => return (by_proxy(), instead),
        Some(Instead::Ignore | Instead::Garbage) => plain(500),
        Some(Instead::Nonsense { done }) => {
            if done {
                act(state, request, action, &key, clock);
            }
            xml("<html><body>Welcome!</body></html>".to_owned())
        }
        _ => match refused(state, request, (bucket, within.is_some()), (action, &key), clock) {
            Some(response) => response,
            None => act(state, request, action, &key, clock),
        },
    };
    response.headers.push(("date", sign::http_date(clock)));
    if !state.habits.nameless {
        response.headers.push(("x-amz-request-id", state.asked.len().to_string()));
    }
    if let Some(region) = &state.habits.region {
        response.headers.push(("x-amz-bucket-region", region.clone()));
    }
    (response, instead)
}

fn refused(
    state: &State,
    request: &Request,
    (bucket, is_in_host): (&str, bool),
    (action, key): (&str, &str),
    clock: i64,
) -> Option<Response> {
    if let Some(code) = state.habits.in_host.filter(|_| !is_in_host) {
        return Some(error(403, code));
    }
    let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
    let Some(claimed) = sign::claimed(request) else { return Some(error(403, "AccessDenied")) };
    if claimed.key != KEYS.0 {
        return Some(error(403, "InvalidAccessKeyId"));
    }
    if state.habits.region.as_ref().is_some_and(|region| region != claimed.region) {
        return Some(error(400, "AuthorizationHeaderMalformed"));
    }
    let stamp = header("x-amz-date");
    let in_time = sign::stamp(clock - SKEW_MAX).as_str() <= stamp && stamp <= sign::stamp(clock + SKEW_MAX).as_str();
    if !in_time || !stamp.starts_with(claimed.date) {
        return Some(error(403, "RequestTimeTooSkewed"));
    }
    if !sign::is_right(request, &claimed, KEYS.1) {
        return Some(error(403, "SignatureDoesNotMatch"));
    }
    if state.habits.token.as_ref().is_some_and(|token| token != header("x-amz-security-token")) {
        return Some(error(400, "ExpiredToken"));
    }
    if sign::sha256(&request.body) != header("x-amz-content-sha256") {
        return Some(error(400, "XAmzContentSHA256Mismatch"));
    }
    if state.habits.forbidden.contains(action) || !allowed(state, request, action, key, clock) {
        return Some(error(403, "AccessDenied"));
    }
    (bucket != BUCKET).then(|| error(404, "NoSuchBucket"))
}

/// Whether the policy lets a request do what it wants.
///
/// # Source
/// Amazon's tables of which rights an operation needs, and of conditions ("Enforce conditional writes on Amazon S3
/// buckets"; "Object Lock").
fn allowed(state: &State, request: &Request, action: &str, key: &str, clock: i64) -> bool {
    let Some(policy) = &state.habits.policy else { return true };
    let mut context = Context::new();
    let right = match action {
        "HeadObject" if request.query.contains_key("versionId") => "GetObjectVersion",
        "HeadObject" => "GetObject",
        "CreateMultipartUpload" | "UploadPart" | "CompleteMultipartUpload" => "PutObject",
        other => other,
    };
    let prefix = request.query.get("prefix").filter(|_| matches!(right, "ListBucket" | "ListBucketVersions"));
    context.extend(prefix.map(|prefix| ("s3:prefix", prefix.clone())));
    context.extend(request.headers.get("if-none-match").map(|tag| ("s3:if-none-match", tag.clone())));
    if right == "PutObject" {
        let creates = matches!(action, "PutObject" | "CompleteMultipartUpload");
        context.insert("s3:ObjectCreationOperation", creates.to_string());
    }
    let lock = said_lock(request);
    if let Some((mode, until)) = &lock {
        let days = (1..36_525).take_while(|days| sign::iso(clock + days * 86_400) <= *until).count();
        context.insert("s3:object-lock-mode", mode.clone());
        context.insert("s3:object-lock-remaining-retention-days", days.to_string());
    }
    let may = |right: &str| policy.allows(&format!("s3:{right}"), &arn(key), &context);
    may(right) && (lock.is_none() || may("PutObjectRetention"))
}

fn arn(key: &str) -> String {
    if key.is_empty() { format!("arn:aws:s3:::{BUCKET}") } else { format!("arn:aws:s3:::{BUCKET}/{key}") }
}

/// Whether somebody may know that there is no object of a name: whoever may list it. Amazon takes the name for the
/// prefix then (as the Ceph project found, whose pull request 68577 does the same).
fn may_miss(state: &State, key: &str) -> bool {
    let context = Context::from([("s3:prefix", key.to_owned())]);
    state.habits.policy.as_ref().is_none_or(|policy| policy.allows("s3:ListBucket", &arn(""), &context))
}

/// `If-None-Match: *`, as far as it is heeded here.
fn condition(state: &State, request: &Request, key: &str) -> Option<Response> {
    if !request.headers.contains_key("if-none-match") {
        return None;
    }
    if state.habits.refuses_conditions {
        return Some(error(501, "NotImplemented"));
    }
    let taken = !state.habits.ignores_conditions && state.objects.contains_key(key);
    taken.then(|| error(412, "PreconditionFailed"))
}

fn is_full(state: &State, more: usize) -> bool {
    state.habits.quota.is_some_and(|quota| state.bytes() + more as u64 > quota)
}

fn act(state: &mut State, request: &Request, action: &str, key: &str, clock: i64) -> Response {
    let of_query = |name: &str| request.query.get(name).map_or("", String::as_str);
    let class = request.headers.get("x-amz-storage-class").map_or("STANDARD", String::as_str);
    let needs_sum = matches!(action, "PutObject" | "UploadPart");
    if state.habits.demands_sums && needs_sum && !request.headers.contains_key("content-md5") {
        let words = "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters";
        return told(400, "InvalidRequest", words);
    }
    match action {
        "ListBucket" => list(state, request),
        "ListBucketVersions" => versions(state, request),
        "GetObjectVersion" => {
            let kept = state.versions.get(key).and_then(|of| of.iter().find(|kept| kept.id == of_query("versionId")));
            match kept.map(|kept| &kept.object) {
                Some(Some(bytes)) => ranged(bytes, Vec::new(), request),
                Some(None) => error(405, "MethodNotAllowed"),
                None => error(404, "NoSuchVersion"),
            }
        }
        "ListBucketMultipartUploads" => uploads(state, of_query("prefix")),
        "GetObject" | "HeadObject" => read(state, request, key),
        "PutObject" => {
            if let Some(response) = condition(state, request, key) {
                return response;
            }
            if is_full(state, request.body.len()) {
                return error(403, "QuotaExceeded");
            }
            let lock = match lock(state, request, true) {
                Ok(lock) => lock,
                Err(refused) => return refused,
            };
            let tag = state.set(key, request.body.clone(), class);
            state.objects.get_mut(key).expect("it was set").lock = lock;
            Response { status: 200, headers: vec![("etag", tag)], body: Vec::new() }
        }
        "DeleteObject" => {
            state.remove(key);
            plain(204)
        }
        "CreateMultipartUpload" => {
            let id = format!("upload/{}&", state.number());
            let lock = match lock(state, request, false) {
                Ok(lock) => lock,
                Err(refused) => return refused,
            };
            let (key, class) = (key.to_owned(), class.to_owned());
            let upload = Upload { key, class, lock, since: clock, parts: Default::default() };
            state.uploads.insert(id.clone(), upload);
            xml(format!(
                "<InitiateMultipartUploadResult><UploadId>{}</UploadId></InitiateMultipartUploadResult>",
                escape(&id)
            ))
        }
        "UploadPart" => {
            if is_full(state, request.body.len()) {
                return error(403, "QuotaExceeded");
            }
            let part = state.made(request.body.clone(), class);
            let tag = part.tag.clone();
            let number = of_query("partNumber").parse().unwrap_or(0);
            let has_sum = request.headers.contains_key("content-md5");
            match state.uploads.get_mut(of_query("uploadId")).filter(|upload| upload.key == key) {
                Some(upload) if upload.lock.is_some() && !has_sum => error(400, "InvalidRequest"),
                Some(upload) => {
                    upload.parts.insert(number, part);
                    Response { status: 200, headers: vec![("etag", tag)], body: Vec::new() }
                }
                None => error(404, "NoSuchUpload"),
            }
        }
        "AbortMultipartUpload" => match state.uploads.remove(of_query("uploadId")) {
            Some(_) => plain(204),
            None => error(404, "NoSuchUpload"),
        },
        "CompleteMultipartUpload" => complete(state, request, key),
        "RestoreObject" => thaw(state, request, key),
        "PutObjectRetention" => retain(state, request, key),
        _ => error(405, "MethodNotAllowed"),
    }
}

/// The lock that an object is to be made with. None is taken without a sum of the bytes.
fn lock(state: &State, request: &Request, needs_sum: bool) -> Result<Option<(String, String)>, Response> {
    let said = said_lock(request);
    let has_sum = request.headers.get("content-md5").is_some_and(|sum| sum.len() == 24);
    if said.is_some() && !state.habits.locks {
        return Err(told(400, "InvalidRequest", "Bucket is missing Object Lock Configuration"));
    }
    if said.is_some() && needs_sum && !has_sum {
        return Err(error(400, "InvalidRequest"));
    }
    Ok(said)
}

/// The lock that a request wants, by its headers or, if it is about nothing else, its body: a mode, and when it ends.
fn said_lock(request: &Request) -> Option<(String, String)> {
    if request.query.contains_key("retention") {
        let text = String::from_utf8_lossy(&request.body);
        let part = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
        };
        return part("Mode").zip(part("RetainUntilDate"));
    }
    let header = |name: &str| request.headers.get(name).cloned();
    header("x-amz-object-lock-mode").zip(header("x-amz-object-lock-retain-until-date"))
}

/// A lock may become longer, and not shorter.
fn retain(state: &mut State, request: &Request, key: &str) -> Response {
    if !state.habits.locks || !request.headers.contains_key("content-md5") {
        return error(400, "InvalidRequest");
    }
    let Some(said) = said_lock(request) else { return error(400, "MalformedXML") };
    match state.objects.get_mut(key) {
        None => error(404, "NoSuchKey"),
        Some(object) if object.lock.as_ref().is_some_and(|lock| lock.1 > said.1) => error(403, "AccessDenied"),
        Some(object) => {
            object.lock = Some(said);
            plain(200)
        }
    }
}

/// As Amazon's does it: the first asks for it, others are told that it is under way.
fn thaw(state: &mut State, request: &Request, key: &str) -> Response {
    let Some(frozen) = &state.habits.frozen else { return error(403, "InvalidObjectState") };
    let text = String::from_utf8_lossy(&request.body);
    let has = |part: &str| text.contains(part);
    if !(has("<RestoreRequest") && has("<Days>") && has("<Tier>")) {
        return error(400, "MalformedXML");
    }
    let Some(object) = state.objects.get_mut(key) else { return error(404, "NoSuchKey") };
    if object.class != *frozen {
        return error(403, "InvalidObjectState");
    }
    match object.thaws_in {
        None => {
            object.thaws_in = Some(state.habits.thaws_after);
            plain(202)
        }
        Some(0) => plain(200),
        Some(_) => error(409, "RestoreAlreadyInProgress"),
    }
}

fn complete(state: &mut State, request: &Request, key: &str) -> Response {
    let id = request.query.get("uploadId").map_or("", String::as_str);
    let Some(upload) = state.uploads.get(id).filter(|upload| upload.key == key) else {
        return error(404, "NoSuchUpload");
    };
    if let Some(response) = condition(state, request, key) {
        return response;
    }
    let text = String::from_utf8_lossy(&request.body).replace("&quot;", "\"");
    let mut bytes = Vec::new();
    let named = text.matches("<Part>").count();
    for (place, (number, part)) in upload.parts.iter().enumerate() {
        let said = format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", part.tag);
        if !text.contains(&said) {
            return error(400, "InvalidPart");
        }
        if place + 1 < named && part.bytes.len() < 5 << 20 {
            return error(400, "EntityTooSmall");
        }
        bytes.extend_from_slice(&part.bytes);
    }
    if named != upload.parts.len() {
        return error(400, "InvalidPart");
    }
    let (class, lock) = (upload.class.clone(), upload.lock.clone().filter(|_| !state.habits.forgets_locks));
    state.uploads.remove(id);
    state.set(key, bytes, &class);
    state.objects.get_mut(key).expect("it was set").lock = lock;
    xml("\n  <CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>".to_owned())
}

fn read(state: &mut State, request: &Request, key: &str) -> Response {
    let knows_locks = state
        .habits
        .policy
        .as_ref()
        .is_none_or(|policy| policy.allows("s3:GetObjectRetention", &arn(key), &Context::new()));
    let (status, code) = if may_miss(state, key) { (404, "NoSuchKey") } else { (403, "AccessDenied") };
    let Some(object) = state.objects.get_mut(key) else {
        return if request.method == "HEAD" { plain(status) } else { error(status, code) };
    };
    let len = object.bytes.len();
    let mut headers = vec![("etag", object.tag.clone()), ("x-amz-storage-class", object.class.clone())];
    if let Some((mode, until)) = object.lock.as_ref().filter(|_| knows_locks) {
        headers.push(("x-amz-object-lock-mode", mode.clone()));
        headers.push(("x-amz-object-lock-retain-until-date", until.clone()));
    }
    let is_cold = state.habits.frozen.as_ref() == Some(&object.class);
    if request.method == "HEAD" {
        if let (true, Some(left)) = (is_cold, &mut object.thaws_in) {
            headers.push(("x-amz-restore", format!("ongoing-request=\"{}\"", *left > 0)));
            *left = left.saturating_sub(1);
        }
        headers.push(match state.habits.silent_heads {
            true => ("transfer-encoding", "chunked".to_owned()),
            false => ("content-length", len.to_string()),
        });
        return Response { status: 200, headers, body: Vec::new() };
    }
    if is_cold && object.thaws_in != Some(0) {
        return error(403, "InvalidObjectState");
    }
    match state.habits.ignores_ranges {
        true => Response { status: 200, headers, body: object.bytes.to_vec() },
        false => ranged(&object.bytes, headers, request),
    }
}

/// All of it, or the range that is asked for.
fn ranged(bytes: &[u8], mut headers: Vec<(&'static str, String)>, request: &Request) -> Response {
    let len = bytes.len();
    let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    match range {
        None => Response { status: 200, headers, body: bytes.to_vec() },
        Some((from, to)) => {
            let (from, to): (usize, usize) = (from.parse().unwrap_or(usize::MAX), to.parse().unwrap_or(usize::MAX));
            if from >= len {
                return error(416, "InvalidRange");
            }
            let to = to.min(len - 1);
            headers.push(("content-range", format!("bytes {from}-{to}/{len}")));
            Response { status: 206, headers, body: bytes[from..=to].to_vec() }
        }
    }
}

fn list(state: &State, request: &Request) -> Response {
    let of_query = |name: &str| request.query.get(name).map_or("", String::as_str);
    let prefix = of_query("prefix");
    let after = of_query("continuation-token");
    let page = state.habits.page.unwrap_or(PAGE);
    let mut keys = state.objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
    let entries: Vec<_> = keys.by_ref().take(page).collect();
    let is_more = keys.next().is_some();
    let mut body = format!("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><IsTruncated>{is_more}</IsTruncated>");
    if let (true, Some((last, _))) = (is_more, entries.last()) {
        body.push_str(&format!("<NextContinuationToken>{}</NextContinuationToken>", escape(last)));
    }
    for (key, object) in entries {
        body.push_str(&format!("<Contents><Key>{}</Key><Size>{}</Size></Contents>", escape(key), object.bytes.len()));
    }
    xml(body + "</ListBucketResult>")
}

/// As Amazon's does it: by keys, the newest of each first, marks of removals among them.
fn versions(state: &State, request: &Request) -> Response {
    let of_query = |name: &str| request.query.get(name).map_or("", String::as_str);
    let (prefix, after) = (of_query("prefix"), (of_query("key-marker"), of_query("version-id-marker")));
    let of_all = state.versions.iter().filter(|(key, _)| key.starts_with(prefix));
    let all: Vec<_> = of_all.flat_map(|(key, of)| of.iter().map(move |kept| (key, kept))).collect();
    let begin = all.iter().position(|(key, kept)| (key.as_str(), kept.id.as_str()) == after).map_or(0, |at| at + 1);
    let page = &all[begin..all.len().min(begin + state.habits.page.unwrap_or(PAGE))];
    let is_more = begin + page.len() < all.len();
    let mut body =
        format!("<?xml version=\"1.0\"?><ListVersionsResult xmlns=\"x\"><IsTruncated>{is_more}</IsTruncated>");
    if let (true, Some((key, kept))) = (is_more, page.last()) {
        let (key, id) = (escape(key), escape(&kept.id));
        body += &format!("<NextKeyMarker>{key}</NextKeyMarker><NextVersionIdMarker>{id}</NextVersionIdMarker>");
    }
    for (key, kept) in page {
        let (key, id, since) = (escape(key), escape(&kept.id), sign::iso(kept.since));
        let fields = format!("<Key>{key}</Key><VersionId>{id}</VersionId><LastModified>{since}</LastModified>");
        body += &match &kept.object {
            Some(bytes) => format!("<Version>{fields}<Size>{}</Size></Version>", bytes.len()),
            None => format!("<DeleteMarker>{fields}</DeleteMarker>"),
        };
    }
    xml(body + "</ListVersionsResult>")
}

fn uploads(state: &State, prefix: &str) -> Response {
    let mut body = String::from("<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>");
    for (id, upload) in state.uploads.iter().filter(|(_, upload)| upload.key.starts_with(prefix)) {
        let (key, id, since) = (escape(&upload.key), escape(id), sign::iso(upload.since));
        body.push_str(&format!(
            "<Upload><Key>{key}</Key><UploadId>{id}</UploadId><Initiated>{since}</Initiated></Upload>"
        ));
    }
    xml(body + "</ListMultipartUploadsResult>")
}
