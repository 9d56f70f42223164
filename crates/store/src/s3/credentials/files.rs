//! The user's profile: `~/.aws/credentials` and `~/.aws/config`, as all programs for S3 read them.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{NoKeys, User, keys, of_json};
use crate::s3::sign::Keys;

/// What the files say of one profile. What is indented below a setting is found behind its name and a dot:
/// `s3.addressing_style`.
#[derive(Clone, Default)]
pub(crate) struct Profile {
    name: String,
    settings: HashMap<String, String>,
}

impl Profile {
    /// The profile that the environment names, or `default`.
    pub(crate) fn read(user: &User) -> Result<Self, String> {
        let named = user.get("AWS_PROFILE").or_else(|| user.get("AWS_DEFAULT_PROFILE"));
        let name = named.unwrap_or("default");
        let mut profile = Profile { name: name.to_owned(), settings: HashMap::new() };
        let mut found = false;
        // What is in the file of credentials counts more.
        for (variable, file, is_config) in
            [("AWS_CONFIG_FILE", "config", true), ("AWS_SHARED_CREDENTIALS_FILE", "credentials", false)]
        {
            let Some(path) = user.file(variable, file) else { continue };
            found |= profile.add(&path, is_config)?;
        }
        match named {
            Some(name) if !found => Err(format!("there is no profile '{name}' in ~/.aws/config or ~/.aws/credentials")),
            _ => Ok(profile),
        }
    }

    fn add(&mut self, path: &Path, is_config: bool) -> Result<bool, String> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(false),
            Err(error) => return Err(format!("'{}' can't be read: {error}", path.display())),
        };
        let (mut within, mut found, mut above) = (false, false, String::new());
        for line in text.lines() {
            if line.trim_start().starts_with(['#', ';']) || line.trim().is_empty() {
                continue;
            }
            if let Some(section) = line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                let section = section.trim();
                let name = match (is_config, section.split_once(char::is_whitespace)) {
                    (true, Some(("profile", name))) => name.trim(),
                    (true, _) if section == "default" => section,
                    (true, _) => "",
                    (false, _) => section,
                };
                within = name == self.name;
                found |= within;
            } else if within && let Some((name, value)) = line.split_once('=') {
                let value = value.split(" #").next().unwrap_or_default().trim();
                let name = name.trim().to_ascii_lowercase();
                let name = if line.starts_with([' ', '\t']) { format!("{above}.{name}") } else { name };
                if !name.contains('.') {
                    above.clone_from(&name);
                }
                self.settings.insert(name, value.to_owned());
            }
        }
        Ok(found)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A setting that is there, and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn keys(&self) -> Result<Option<Keys>, NoKeys> {
        let source = format!("the profile '{}' of ~/.aws", self.name);
        if let (Some(id), Some(secret)) = (self.get("aws_access_key_id"), self.get("aws_secret_access_key")) {
            let token = self.get("aws_session_token").map(str::to_owned);
            return Ok(Some(keys(id.to_owned(), secret.to_owned(), token, None, &source)));
        }
        if let Some(command) = self.get("credential_process") {
            return run(command).map(Some).map_err(NoKeys::Never);
        }
        for (setting, what) in
            [("role_arn", "takes a role"), ("sso_session", "logs in by SSO"), ("sso_start_url", "logs in by SSO")]
        {
            if self.get(setting).is_some() {
                return Err(NoKeys::Never(format!(
                    "{source} {what}, which has to be done by Amazon's own program: give it the setting \
                     credential_process = aws configure export-credentials --profile {}, or set what that prints",
                    self.name
                )));
            }
        }
        Ok(None)
    }
}

fn run(command: &str) -> Result<Keys, String> {
    let source = "the program that credential_process names";
    let output = Command::new("/bin/sh").arg("-c").arg(command).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    match output {
        Err(error) => Err(format!("{source} can't be run: {error}")),
        Ok(output) if !output.status.success() => Err(format!("{source} failed ({})", output.status)),
        Ok(output) => of_json(&output.stdout, "SessionToken", source),
    }
}
