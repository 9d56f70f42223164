//! A certificate for `localhost` and `far.test`, and the authority that signed it: made for these tests, good for a hundred years, and for nothing else.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(super) const AUTHORITY: &str = include_str!("tls/ca.pem");

pub(super) fn config() -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/server.pem")).expect("it is PEM");
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key")).expect("it is PEM");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows the usual versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the key is that of the certificate");
    Arc::new(config)
}
