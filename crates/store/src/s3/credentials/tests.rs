use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use super::*;

fn user(home: Option<&std::path::Path>, variables: &[(&str, &str)]) -> User {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    User::new(variables, home.map(Into::into))
}

fn find(home: Option<&std::path::Path>, variables: &[(&str, &str)], is_amazon: bool) -> Result<Arc<Keys>, NoKeys> {
    let user = user(home, variables);
    let profile = Profile::read(&user).map_err(NoKeys::Never)?;
    Chain::new(user, profile, is_amazon, Arc::default()).keys()
}

fn shown(keys: &Keys) -> (&str, &str, Option<&str>, &str) {
    (keys.id.expose(), keys.secret.expose(), keys.token.as_ref().map(Secret::expose), &keys.source)
}

/// A service that gives these bodies for requests that begin so, and 404 for all others.
fn service(answers: Vec<(&'static str, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                request.push(byte[0]);
            }
            let request = String::from_utf8(request).unwrap();
            let answer = answers.iter().find(|(begin, _)| begin.split('|').all(|part| request.contains(part)));
            let (status, body) = answer.map_or((404, ""), |(_, body)| (200, body));
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    url
}

#[test]
fn the_environment_comes_first() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(home.path().join(".aws/credentials"), "[default]\naws_access_key_id=F\naws_secret_access_key=f\n")
        .unwrap();
    let set = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "e"), ("AWS_SESSION_TOKEN", "t")];
    assert_eq!(shown(&find(Some(home.path()), &set, false).unwrap()), ("E", "e", Some("t"), "the environment"));
    assert_eq!(
        shown(&find(Some(home.path()), &[], false).unwrap()),
        ("F", "f", None, "the profile 'default' of ~/.aws")
    );
    for half in &set[..2] {
        let Err(NoKeys::Never(why)) = find(Some(home.path()), &[*half], false) else { panic!("{half:?}") };
        assert!(why.contains("isn't") && !why.contains(" e "), "{why}");
    }
}

#[test]
fn profiles() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".aws");
    std::fs::create_dir(&folder).unwrap();
    let config = "# a comment\n[default]\nregion = eu-west-1\ns3 =\n  endpoint_url = http://nested\n\n[profile work] ; x\n\
                  region=us-west-2 # here\nendpoint_url = https://h\n aws_access_key_id = indented\n\
                  [profile by-program]\ncredential_process = echo '{\"Version\":1,\"AccessKeyId\":\"P\",\"SecretAccessKey\":\"p\",\
                  \"SessionToken\":\"pt\",\"Expiration\":\"2099-01-01T00:00:00Z\"}'\n[profile failing]\ncredential_process = exit 3\n\
                  [profile odd]\ncredential_process = echo geheim\n\
                  [profile role]\nrole_arn = arn:x\nsource_profile = work\n[profile sso]\nsso_session = s\n[profile none]\nregion=x\n[work]\nregion = no\n";
    std::fs::write(folder.join("config"), config).unwrap();
    std::fs::write(folder.join("credentials"), "[work]\naws_access_key_id = W\nAWS_SECRET_ACCESS_KEY = w/+=\n")
        .unwrap();
    let profile = |name| Profile::read(&user(Some(home.path()), &[("AWS_PROFILE", name)]));
    let work = profile("work").unwrap();
    assert_eq!((work.get("region"), work.get("endpoint_url")), (Some("us-west-2"), Some("https://h")));
    let default = Profile::read(&user(Some(home.path()), &[])).unwrap();
    assert_eq!((default.get("endpoint_url"), default.get("s3.endpoint_url")), (None, Some("http://nested")));
    let find = |name| find(Some(home.path()), &[("AWS_PROFILE", name)], false);
    assert_eq!(shown(&find("work").unwrap()).1, "w/+=");
    let given = find("by-program").unwrap();
    assert_eq!((shown(&given).2, given.expires), (Some("pt"), Some(4_070_908_800)));
    for (name, part) in [
        ("failing", "exit status: 3"),
        ("odd", "no JSON"),
        ("role", "credential_process"),
        ("sso", "SSO"),
        ("none", "'none' has none"),
        ("missing", "no profile 'missing'"),
    ] {
        let Err(NoKeys::Never(why)) = find(name) else { panic!("{name}") };
        assert!(why.contains(part) && !why.contains("geheim"), "{why}");
    }
}

#[test]
fn services() {
    let json = |id: &str| {
        format!(
            "{{\"AccessKeyId\":\"{id}\",\"SecretAccessKey\":\"s\",\"Token\":\"t\",\"Expiration\":\"2099-01-01T00:00:00Z\"}}"
        )
    };
    let url = service(vec![
        ("GET /c?x=1 |authorization: Bearer y", json("C")),
        ("PUT /latest/api/token |x-aws-ec2-metadata-token-ttl-seconds", "tok".into()),
        ("GET /latest/meta-data/iam/security-credentials/ |x-aws-ec2-metadata-token: tok", "my-role\n".into()),
        ("GET /latest/meta-data/iam/security-credentials/my-role |token: tok", json("I")),
        ("POST / ", "<R><Credentials><AccessKeyId>W</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
                     <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></R>".into()),
    ]);
    let container = format!("{url}/c?x=1");
    let set =
        [("AWS_CONTAINER_CREDENTIALS_FULL_URI", &container[..]), ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer y")];
    assert_eq!(shown(&find(None, &set, false).unwrap()).0, "C");
    let set = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url[..])];
    assert_eq!(shown(&find(None, &set, true).unwrap()), ("I", "s", Some("t"), "this machine's role"));
    assert!(matches!(find(None, &set, false), Err(NoKeys::Never(_))), "a machine's keys are for nobody but Amazon");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "tok").unwrap();
    let set = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:r"),
        ("AWS_ENDPOINT_URL_STS", &url[..]),
    ];
    assert_eq!(shown(&find(None, &set, false).unwrap()).0, "W");
    let far = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://10.0.0.1/x")];
    assert!(matches!(find(None, &far, false), Err(NoKeys::Never(why)) if why.contains("in the clear")));
    let gone = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/x")];
    assert!(matches!(find(None, &gone, false), Err(NoKeys::Passing(_))));
}

/// So many seconds from now, as services write it.
fn after(seconds: i64) -> String {
    let stamp = time::stamp(time::now() + seconds);
    let parts = [&stamp[..4], &stamp[4..6], &stamp[6..8], &stamp[9..11], &stamp[11..13], &stamp[13..15]];
    format!("{}-{}-{}T{}:{}:{}Z", parts[0], parts[1], parts[2], parts[3], parts[4], parts[5])
}

/// A program that gives keys once, and no more.
#[test]
fn keys_count_to_their_end_though_there_are_no_others() {
    let of = |seconds: i64| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".aws")).unwrap();
        let (given, end) = (dir.path().join("given"), after(seconds));
        let text = format!(
            "[default]\ncredential_process = mkdir '{}' && echo '{{\"AccessKeyId\":\"id\",\"SecretAccessKey\":\"s\",\"Expiration\":\"{end}\"}}'\n",
            given.display()
        );
        std::fs::write(dir.path().join(".aws/config"), text).unwrap();
        let user = user(Some(dir.path()), &[]);
        (Chain::new(user.clone(), Profile::read(&user).unwrap(), false, Arc::default()), dir)
    };
    let (chain, _dir) = of(200);
    let first = chain.keys().unwrap();
    assert!(Arc::ptr_eq(&first, &chain.keys().unwrap()), "they end within five minutes, and others are not to be had");
    let (chain, _dir) = of(1);
    chain.keys().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(matches!(chain.keys(), Err(NoKeys::Passing(_))), "who has given some may give some again");
}

#[test]
fn what_ends_is_asked_for_again() {
    let end = after(60);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(".aws")).unwrap();
    let count = dir.path().join("count");
    let text = format!(
        "[default]\ncredential_process = echo x >>{0}; echo '{{\"AccessKeyId\":\"'$(wc -l <{0})'\",\"SecretAccessKey\":\"s\",\"Expiration\":\"{end}\"}}'\n",
        count.display()
    );
    std::fs::write(dir.path().join(".aws/config"), text).unwrap();
    let user = user(Some(dir.path()), &[]);
    let chain = Chain::new(user.clone(), Profile::read(&user).unwrap(), false, Arc::default());
    let first = chain.keys().unwrap();
    let second = chain.keys().unwrap();
    assert_eq!((shown(&first).0, shown(&second).0), ("1", "2"), "they end within five minutes");
    assert!(chain.are_others(&first) && chain.are_others(&second));
}
