//! A certificate for `localhost` and `far.test`, and the authority that signed it: made for these tests, good for a
//! hundred years, and for nothing else.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(super) const AUTHORITY: &str = include_str!("tls/ca.pem");
/// One for `localhost` that has signed itself, as `openssl req -x509` makes it: it says of itself that it is an
/// authority.
pub(super) const OWN: &str = include_str!("tls/own.pem");

pub(super) fn config() -> Arc<ServerConfig> {
    with(include_str!("tls/server.pem"), include_str!("tls/server.key"))
}

pub(super) fn own() -> Arc<ServerConfig> {
    with(OWN, include_str!("tls/own.key"))
}

fn with(certificate: &str, key: &str) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("it is PEM");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("it is PEM");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows the usual versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the key is that of the certificate");
    Arc::new(config)
}
