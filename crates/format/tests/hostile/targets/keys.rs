//! Configs, key objects, key files, recovery files.

use super::*;

/// header | body | checksum of both.
fn plain(header: &Header, body: &[u8]) -> Vec<u8> {
    let object = [&header.encode()[..], body].concat();
    let sum = checksum(&object);
    [&object[..], &sum].concat()
}

fn plain_body(object: &[u8]) -> &[u8] {
    &object[32..object.len() - 16]
}

/// A config, its signed body, or the body that the owner signs.
pub fn config(bytes: &[u8]) -> bool {
    let header = Header::new(ObjectType::Config, SUITE, REPOSITORY.0);
    let object = match depth(bytes, 3) {
        (0, object) => object.to_vec(),
        (1, signed) => plain(&header, signed),
        (_, body) => {
            let signature = KEYS.owner.sign("config", &[&header.encode()[..], body].concat());
            let mut signed = Vec::new();
            Encoder::new(&mut signed).array(2).unwrap().bytes(body).unwrap().bytes(&signature).unwrap();
            plain(&header, &signed)
        }
    };
    let Ok(config) = bounded(small(object.len()), || Config::decode(&object)) else { return false };
    let ChunkSizes { min, normal, max } = config.chunks;
    assert!(64 <= min && min <= normal && normal <= max && normal.is_power_of_two());
    let again = Config { owner: KEYS.owner.verifying(), ..config.clone() };
    let back = Config::decode(&again.encode(&KEYS.owner)).unwrap();
    assert_eq!((back.id, back.suite, back.chunks), (config.id, config.suite, config.chunks));
    assert_eq!((back.block_bytes, back.pack_bytes), (config.block_bytes, config.pack_bytes));
    assert_eq!(back.data_key.encode(), config.data_key.encode());
    assert_eq!(back.meta_key.encode(), config.meta_key.encode());
    true
}

pub fn config_samples() -> Vec<Vec<u8>> {
    let config = Config {
        id: REPOSITORY,
        suite: SUITE,
        chunks: ChunkSizes { min: 16384, normal: 65536, max: 262144 },
        block_bytes: 1 << 20,
        pack_bytes: 64 << 20,
        data_key: PrivateKey::new(secret(8)).unwrap().public(),
        meta_key: KEYS.meta.public(),
        owner: KEYS.owner.verifying(),
        generation: 0,
    };
    let object = config.encode(&KEYS.owner);
    let signed = plain_body(&object);
    let mut decoder = Decoder::new(signed);
    decoder.array().unwrap();
    vec![at_depth(0, &object), at_depth(1, signed), at_depth(2, decoder.bytes().unwrap())]
}

fn sample_secrets(role: Role) -> Secrets {
    let owner = Secrets {
        repository: REPOSITORY,
        key: KEY,
        role: Role::Owner,
        owner: KEYS.owner.verifying(),
        index: KEYS.index.clone(),
        identity: Some(secret(11)),
        cutting: Some(secret(12)),
        data: Some(PrivateKey::new(secret(8)).unwrap()),
        meta: Some(KEYS.meta.clone()),
        owner_signing: Some(KEYS.owner.clone()),
        signing: Some(KEYS.signing.clone()),
        tree_identity: None,
        wrapping: None,
        generations: Vec::new(),
    };
    owner.lessen(role, KEY, Some(KEYS.signing.clone())).unwrap()
}

fn generation_secrets(number: u32) -> GenerationSecrets {
    let half = |byte| Some(LazyKey::new(secret(byte)));
    GenerationSecrets { number, tag: number + 6, index: secret(4), data: half(8), meta: half(5) }
}

/// A generation, its signed body, or the body that the owner signs.
pub fn generation(bytes: &[u8]) -> bool {
    let header = Header::new(ObjectType::Generation, SUITE, 1u128.to_be_bytes()).of(7);
    let object = match depth(bytes, 3) {
        (0, object) => object.to_vec(),
        (1, signed) => plain(&header, signed),
        (_, body) => {
            let signature = KEYS.owner.sign("generation", &[&header.encode()[..], body].concat());
            let mut signed = Vec::new();
            Encoder::new(&mut signed).array(2).unwrap().bytes(body).unwrap().bytes(&signature).unwrap();
            plain(&header, &signed)
        }
    };
    let owner = KEYS.owner.verifying();
    let most = small(object.len());
    let Ok(generation) = bounded(most, || Generation::decode(REPOSITORY, &owner, 1, &object)) else { return false };
    assert!(generation.number == 1 && generation.tag != 0);
    let keys: Vec<KeyId> = generation.keys().collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
    for key in keys {
        // Tens of kilobytes are a private key that was expanded.
        let opened = bounded(most + (256 << 10), || generation.secrets(key, Role::Writer, &KEYS.meta));
        if let Ok(Some(secrets)) = opened {
            assert_eq!((secrets.number, secrets.tag), (generation.number, generation.tag));
        }
    }
    let back = Generation::decode(REPOSITORY, &owner, 1, &generation.encode(&KEYS.owner)).unwrap();
    assert!(back.keys().eq(generation.keys()) && back.meta_key.encode() == generation.meta_key.encode());
    true
}

pub fn generation_samples() -> Vec<Vec<u8>> {
    let of = Origin { repository: REPOSITORY, suite: SUITE, created: 7 };
    let secrets = generation_secrets(1);
    let mut generation = Generation::new(of, &secrets).unwrap();
    let mut samples = Vec::new();
    for (byte, role) in [(2, Role::Writer), (9, Role::Keeper)] {
        let share = secrets.lessen(role).unwrap();
        let fresh = (&secret(21), &secret(22));
        generation.share(KeyId([byte; 16]), &KEYS.meta.public(), &share, fresh).unwrap();
        let object = generation.encode(&KEYS.owner);
        let signed = plain_body(&object);
        let mut decoder = Decoder::new(signed);
        decoder.array().unwrap();
        samples.extend([at_depth(0, &object), at_depth(1, signed), at_depth(2, decoder.bytes().unwrap())]);
    }
    samples
}

/// A key object, or its body.
pub fn key_object(bytes: &[u8]) -> bool {
    let header = Header::new(ObjectType::Key, SUITE, KEY.0);
    let object = match depth(bytes, 2) {
        (0, object) => object.to_vec(),
        (_, body) => plain(&header, body),
    };
    let most = small(object.len());
    let Ok(key) = bounded(most, || KeyObject::decode(KEY, &object)) else { return false };
    if let Lock::Passphrase { memory_kib, passes, lanes, .. } = key.lock()
        && *memory_kib <= 128
        && *passes <= 2
        && *lanes <= 2
    {
        let _ = key.lock().passphrase_key(b"passphrase");
    }
    let certificate = key.certificate(REPOSITORY, &KEYS.owner.verifying());
    let _ = bounded(most, || key.label(&KEYS.index));
    let unlock = secret(77);
    if let Ok(secrets) = bounded(most, || key.unlock(&unlock)) {
        let parts = KeyParts {
            secrets: &secrets,
            lock: Lock::File,
            unlock: &unlock,
            label: "",
            created: 5,
            fresh: FRESH,
            generation: 0,
        };
        let again = KeyObject::decode(KEY, &key.reseal(&parts)).unwrap();
        assert_eq!(again.unlock(&unlock).unwrap().encode(), secrets.encode());
        assert_eq!(again.certificate(REPOSITORY, &KEYS.owner.verifying()).is_ok(), certificate.is_ok());
    }
    let revoked = KeyObject::decode(KEY, &key.revoke(REPOSITORY, 9, &KEYS.owner)).unwrap();
    assert!(*revoked.lock() == Lock::Revoked && revoked.unlock(&unlock).is_err());
    assert!(revoked.certificate(REPOSITORY, &KEYS.owner.verifying()).unwrap().revoked.is_some());
    true
}

pub fn key_object_samples() -> Vec<Vec<u8>> {
    let unlock = secret(77);
    let cost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
    let mut samples = Vec::new();
    for (role, lock) in [
        (Role::Owner, Lock::File),
        (Role::Reader, Lock::File),
        (Role::Writer, Lock::passphrase([0xaa; 16], cost)),
        (Role::Keeper, Lock::File),
    ] {
        let secrets = sample_secrets(role);
        let parts = KeyParts {
            secrets: &secrets,
            lock,
            unlock: &unlock,
            label: "a label",
            created: 5,
            fresh: FRESH,
            generation: 0,
        };
        let object = KeyObject::seal(&parts, SUITE, &KEYS.owner);
        let revoked = KeyObject::decode(KEY, &object).unwrap().revoke(REPOSITORY, 9, &KEYS.owner);
        samples.extend([at_depth(0, &object), at_depth(1, plain_body(&object)), at_depth(1, plain_body(&revoked))]);
    }
    samples
}

/// Text with the check that it should have.
fn checked(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        kept.push_str(line);
        kept.push('\n');
    }
    kept.make_ascii_lowercase();
    let sum: String = checksum(kept.as_bytes())[..4].iter().map(|b| format!("{b:02x}")).collect();
    format!("{text}\ncheck {sum}\n")
}

fn text_at_depth(bytes: &[u8]) -> Option<String> {
    let (depth, rest) = depth(bytes, 2);
    let text = std::str::from_utf8(rest).ok()?;
    Some(if depth == 0 { text.to_owned() } else { checked(text) })
}

fn without_check(text: &str) -> &str {
    text.split_at(text.find("check").unwrap()).0
}

/// A key file, or its lines before the check.
pub fn key_file(bytes: &[u8]) -> bool {
    let Some(text) = text_at_depth(bytes) else { return false };
    let _ = key_file::is_recovery(&text);
    let Ok(file) = bounded(small(text.len()), || KeyFile::decode(&text)) else { return false };
    let again = KeyFile::decode(&file.encode()).unwrap();
    assert_eq!((again.repository, again.key, again.secret), (file.repository, file.key, file.secret));
    true
}

pub fn key_file_samples() -> Vec<Vec<u8>> {
    let text = KeyFile { repository: REPOSITORY, key: KEY, secret: secret(0xab) }.encode();
    let (upper, lines) = (text.to_uppercase(), without_check(&text));
    vec![at_depth(0, text.as_bytes()), at_depth(0, upper.as_bytes()), at_depth(1, lines.as_bytes())]
}

/// A recovery file, its lines before the check, or the secrets in it.
pub fn recovery(bytes: &[u8]) -> bool {
    let decoded = match depth(bytes, 3) {
        (2, secrets) => bounded(small(secrets.len()), || Secrets::decode(secrets)),
        _ => {
            let Some(text) = text_at_depth(bytes) else { return false };
            bounded(small(text.len()), || key_file::decode_recovery(&text))
        }
    };
    let Ok(secrets) = decoded else { return false };
    let text = key_file::encode_recovery(&secrets);
    assert!(key_file::is_recovery(&text));
    assert_eq!(key_file::decode_recovery(&text).unwrap().encode(), secrets.encode());
    true
}

pub fn recovery_samples() -> Vec<Vec<u8>> {
    let mut samples = Vec::new();
    for role in [Role::Owner, Role::Reader, Role::Writer, Role::Keeper] {
        let mut secrets = sample_secrets(role);
        if role == Role::Reader {
            secrets.wrapping = Some(secret(31));
        }
        for number in 1..if role == Role::Writer { 1 } else { 3 } {
            secrets.learn(generation_secrets(number).lessen(role).unwrap());
        }
        let text = key_file::encode_recovery(&secrets);
        let lines = without_check(&text);
        samples.extend([at_depth(0, text.as_bytes()), at_depth(1, lines.as_bytes()), at_depth(2, &secrets.encode())]);
    }
    samples
}
