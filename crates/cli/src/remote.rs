//! What a store on another machine is told of the user: who he is, where his keys are, how to ask him.

use crate::args::Global;
use crate::profile::Profile;
use crate::render::Out;
use crate::{place, process, signals, unlock};
use drumlin_repo::names;
use drumlin_store::Surroundings;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

const KIB: u64 = 1 << 10;

/// All that a store may know; the command line counts more than the profile.
pub fn around(global: &Global, profile: Option<&Profile>, out: &Out) -> Surroundings {
    let (json, quiet, verbose) = (out.json(), out.quiet(), out.verbose());
    let of_profile = |limit: fn(&Profile) -> Option<u32>| profile.and_then(limit);
    let rate = |kib: Option<u32>| kib.map(|kib| u64::from(kib) * KIB);
    let class = global.storage_class.clone().or_else(|| profile.and_then(|p| p.storage_class.clone()));
    // What a profile says was looked at when it was read.
    let lock = global.object_lock.or_else(|| profile.and_then(|p| p.object_lock().ok().flatten()));
    Surroundings {
        user: process::user_name(),
        home: place::home(),
        agent: std::env::var_os("SSH_AUTH_SOCK").filter(|v| !v.is_empty()).map(PathBuf::from),
        ssh_config: None,
        ssh_command: global.ssh_command.clone().or_else(|| profile.and_then(|p| p.ssh_command.clone())),
        endpoint: global.endpoint.clone().or_else(|| profile.and_then(|p| p.endpoint.clone())),
        aws: variables(|name| name.starts_with("AWS_")),
        proxies: variables(|name| name.to_ascii_lowercase().ends_with("_proxy")),
        allow_http: global.allow_http || profile.is_some_and(|p| p.allow_http),
        storage_classes: class.map(|class| (names::DATA.to_owned(), class)).into_iter().collect(),
        object_lock: lock.map(|lock| (lock, names::LASTING.map(str::to_owned).to_vec())),
        as_of: global.as_of.map(|(seconds, _)| seconds),
        ask: unlock::can_ask().then(|| -> drumlin_store::Ask {
            Arc::new(|prompt: &str| String::from_utf8(unlock::ask(prompt).ok()?).ok())
        }),
        // An output of its own, for threads that outlive any borrow.
        tell: Some(Arc::new(move |words: &str| Out::new(json, quiet, verbose).warn(words))),
        stopped: Some(Arc::new(signals::is_stopped)),
        upload_limit: rate(global.limit_upload.or_else(|| of_profile(|p| p.limit_upload))),
        download_limit: rate(global.limit_download.or_else(|| of_profile(|p| p.limit_download))),
        ..Surroundings::default()
    }
}

/// The variables of the environment with such names.
fn variables(which: impl Fn(&str) -> bool) -> HashMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| which(name))
        .collect()
}
