//! TLS by rustls over AWS-LC, and whom it trusts: what the system does, or a file of certificates that the user names.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Trust in what is in `bundle`, or in what the system trusts.
pub(super) fn config(bundle: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let path = match bundle {
        Some(path) => path.to_owned(),
        None => openssl_probe::probe().cert_file.ok_or_else(|| {
            io::Error::other(
                "no certificates of authorities are found on this system: install them (ca-certificates), or name a file with AWS_CA_BUNDLE",
            )
        })?,
    };
    let named = |why: &dyn std::fmt::Display| {
        io::Error::other(format!("the certificates in '{}' can't be read: {why}", path.display()))
    };
    let certificates = CertificateDer::pem_file_iter(&path).map_err(|e| named(&e))?;
    for certificate in certificates {
        // Among those of a system there is always one that is odd; it is passed over, as everybody does.
        let _ = roots.add(certificate.map_err(|e| named(&e))?);
    }
    if roots.is_empty() {
        return Err(named(&"there is none that can be used"));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
