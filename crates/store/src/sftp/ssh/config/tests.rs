use super::*;

fn read_as(text: &str, host: &str, user: Option<&str>) -> Result<Host, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    std::fs::write(&file, text).unwrap();
    Host::read(&[file], &Query { host, user, local_user: "me", home: Some(dir.path()) })
}

fn read(text: &str, host: &str) -> Host {
    read_as(text, host, None).unwrap()
}

const USUAL: &str = "\
# a comment
User everyone
Host backup *.example.com !bad.example.com
    HostName=%h.lan   # behind a value
    Port 2222
    IdentityFile ~/.ssh/one
    IdentityFile \"~/.ssh/t w o\"
    ProxyJump gate
    StrictHostKeyChecking accept-new
    ServerAliveInterval 1m30s
Host backup
    Port 1
    identitiesonly = yes
    ConnectTimeout 7
    UserKnownHostsFile /a /b
Host *
    User nobody
    ServerAliveCountMax 2
    SendEnv LANG LC_*
";

#[test]
fn the_first_value_counts() {
    let host = read(USUAL, "backup");
    assert_eq!(
        (host.host_name.as_deref(), host.user.as_deref(), host.port),
        (Some("%h.lan"), Some("everyone"), Some(2222))
    );
    assert_eq!(host.identity_files, ["~/.ssh/one", "~/.ssh/t w o"]);
    assert_eq!((host.identities_only, host.proxy_jump.as_deref()), (Some(true), Some("gate")));
    assert_eq!((host.strict, host.alive_count), (Some(Strict::AcceptNew), Some(2)));
    assert_eq!(
        (host.alive_interval, host.connect_timeout),
        (Some(Duration::from_secs(90)), Some(Duration::from_secs(7)))
    );
    assert_eq!(host.known_hosts.as_deref(), Some(&["/a".to_owned(), "/b".to_owned()][..]));
    assert!(host.notes.is_empty(), "{:?}", host.notes);
    assert_eq!(read(USUAL, "x.EXAMPLE.com").port, Some(2222));
    assert_eq!(read(USUAL, "bad.example.com").port, None);
}

#[test]
fn matches_that_are_understood_and_others() {
    let text = "Match host b originalhost a\n Port 1\nMatch user me,you !localuser root\n Port 2\nMatch exec true\n Port 3\n\
                Match all\n Port 4\n";
    let host = read(text, "a");
    assert_eq!(host.port, Some(2));
    assert_eq!(host.notes.len(), 1);
    assert!(
        host.notes[0].said.contains("'Match exec true' in") && host.notes[0].said.ends_with("config:5"),
        "{:?}",
        host.notes
    );
    assert_eq!(read(&format!("HostName b\n{text}"), "a").port, Some(1));
    assert_eq!(read_as(text, "a", Some("other")).unwrap().port, Some(4));
    // As ssh has it: the address's user before a file's, and the host's name as it is in the end.
    let text = "User you\nHostName %h.lan\nMatch user them\n Port 5\nMatch host a.lan\n Port 6\n";
    assert_eq!(read_as(text, "a", Some("them")).unwrap().port, Some(5));
    assert_eq!(read(text, "a").port, Some(6));
}

#[test]
fn files_include_files() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    std::fs::create_dir(dir.path().join("config.d")).unwrap();
    write("config", "Host a\n Include config.d/*.conf\nHost *\n Port 9\n");
    write("config.d/1.conf", "Host b\n Port 1\nHost a\n Port 2\n");
    write("config.d/2.conf", "User u\n");
    write("config.d/.hidden.conf", "User hidden\n");
    write("config.d/other", "User other\n");
    let read = |host| {
        let query = Query { host, user: None, local_user: "me", home: None };
        Host::read(&[dir.path().join("config"), dir.path().join("none")], &query).unwrap()
    };
    assert_eq!((read("a").port, read("a").user.as_deref()), (Some(2), Some("u")));
    assert_eq!((read("c").port, read("c").user), (Some(9), None));
    write("config", "Include config\n");
    let query = Query { host: "a", user: None, local_user: "me", home: None };
    assert!(Host::read(&[dir.path().join("config")], &query).unwrap_err().contains("too deeply"));
}

#[test]
fn slips_and_what_is_not_understood() {
    for (text, part) in [
        ("Port x", "config:1: 'port' is not followed by a number"),
        ("\nPort 70000", "config:2"),
        ("User \"a", "quote"),
        ("User", "no value"),
        ("StrictHostKeyChecking maybe", "not known"),
        ("ConnectTimeout 3x", "not a time"),
    ] {
        let why = read_as(text, "a", None).unwrap_err();
        assert!(why.contains(part), "{text}: {why}");
    }
    let host = read("CertificateFile x\nHost b\nBindAddress y\n", "a");
    assert_eq!(host.notes.len(), 1);
    assert!(host.notes[0].said.starts_with("'CertificateFile' in") && !host.notes[0].reaches, "{:?}", host.notes);
    let notes = read("KexAlgorithms +x\nAddressFamily=inet\nCiphers y\nMACs z\n", "a").notes;
    assert_eq!(notes.len(), 4);
    assert!(notes[1].said.starts_with("'AddressFamily' in") && notes[1].reaches, "{notes:?}");
    assert_eq!(read("ProxyCommand nc %h %p\nProxyJump x\n", "a").proxy_jump, None);
}

#[test]
fn patterns() {
    for (pattern, text, matches) in [
        ("*", "", true),
        ("a*c*e", "abcde", true),
        ("a*c*e", "abcdf", false),
        ("?", "a", true),
        ("?", "", false),
        ("*a*a*a*a*a*a*a*a*a*b", &"a".repeat(5000), false),
    ] {
        assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), matches, "{pattern}");
    }
    let patterns: Vec<String> = ["*.b", "!x.b"].map(String::from).to_vec();
    assert!(matches_any("a.B", &patterns) && !matches_any("x.b", &patterns) && !matches_any("c", &patterns));
}

#[test]
fn quotes_and_lines_that_are_taken_as_they_stand() {
    for (line, file) in [
        ("IdentityFile \"a b\"", "a b"),
        ("IdentityFile 'a \"b'", "a \"b"),
        (r"IdentityFile a\ b", "a b"),
        (r#"IdentityFile "a\"b\\""#, r#"a"b\"#),
        (r"IdentityFile a\b", r"a\b"),
        ("IdentityFile = a#b # more", "a#b"),
    ] {
        assert_eq!(read(line, "h").identity_files, [file], "{line}");
    }
    for line in ["ProxyCommand ", "ProxyCommand=", "ProxyCommand = ", "\tproxycommand\t"] {
        let command = "sh -c 'a \"b\" = # \\\\ it'";
        assert_eq!(read(&format!("{line}{command}  \n"), "h").proxy_command.as_deref(), Some(command), "{line}");
    }
    // For another host, it needn't even be whole.
    assert_eq!(read("Host x\n ProxyCommand echo \"\nHost h\n Port 3\n", "h").port, Some(3));
    assert!(read_as("ProxyCommand", "h", None).unwrap_err().contains("no value"));
    assert_eq!(read("BatchMode yes", "h").batch_mode, Some(true));
}
