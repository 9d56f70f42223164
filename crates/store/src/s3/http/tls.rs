//! TLS by rustls over AWS-LC, and whom it trusts: what the system does, or a file of certificates that the user names.
//!
//! A server's own certificate may be among those, too. What `openssl req -x509` makes says of itself that it is an
//! authority, and as such webpki takes it for no server's; here it counts for the very server that shows it, if it is
//! for that server's name and hasn't ended.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Trust in what is in `bundle`, or in what the system trusts.
pub(super) fn config(bundle: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let trust = Trust::read(bundle, provider.clone())?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Trust as usual, and in a server whose own certificate is trusted by name.
#[derive(Debug)]
struct Trust {
    usual: Arc<WebPkiServerVerifier>,
    all: Vec<CertificateDer<'static>>,
}

impl Trust {
    fn read(bundle: Option<&Path>, provider: Arc<CryptoProvider>) -> io::Result<Self> {
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
        let mut all = Vec::new();
        for certificate in certificates {
            let certificate = certificate.map_err(|e| named(&e))?;
            // Among those of a system there is always one that is odd; it is passed over, as everybody does.
            let _ = roots.add(certificate.clone());
            all.push(certificate);
        }
        if roots.is_empty() {
            return Err(named(&"there is none that can be used"));
        }
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Trust { usual: usual.map_err(|e| named(&e))?, all })
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.usual.verify_server_cert(shown, between, name, status, now) {
            // Its time has been seen to before; its name has not.
            Err(error) if is_authority(&error) && self.all.iter().any(|own| own.as_ref() == shown.as_ref()) => {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            usual => usual,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, shown, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// A server's certificate that says of itself that it is an authority. The error's type is webpki's, which is no
/// dependency of ours: a test sees to it that the word stays.
fn is_authority(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(why)) if format!("{:?}", why.0).contains("CaUsedAsEndEntity"))
}

/// What is wrong with a certificate, and what to do about it.
pub(super) fn refusal(why: &CertificateError) -> String {
    let own = "name a file with its authority's, or its own, in AWS_CA_BUNDLE, or add that to the system's";
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("its certificate has ended ({why}): have it renewed, or set this machine's clock")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("its certificate doesn't count yet ({why}): set this machine's clock")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("its certificate is for another server ({why}): give the endpoint by a name that is in it")
        }
        CertificateError::UnknownIssuer => {
            format!("its certificate isn't trusted (nobody who is trusted here has signed it): if it should be, {own}")
        }
        CertificateError::Other(_) if is_authority(&Error::InvalidCertificate(why.clone())) => {
            format!("its certificate isn't trusted (it has signed itself): if it should be, {own}")
        }
        other => format!("its certificate isn't trusted ({other}): if it should be, {own}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_testkit::s3::S3;
    use std::time::Duration;

    /// What is trusted by itself is trusted for its own name and time alone: that webpki looks at the time first is
    /// nothing that it promises.
    #[test]
    fn a_certificate_of_the_servers_own_has_its_name_and_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("own.pem");
        std::fs::write(&bundle, S3::own_certificate()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trust = Trust::read(Some(&bundle), provider.clone()).unwrap();
        let own = CertificateDer::from_pem_slice(S3::own_certificate().as_bytes()).unwrap();
        // It is good from the end of 2026 on, for a hundred years.
        let told = |trust: &Trust, name: &str, year: u64| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            let then = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600));
            match trust.verify_server_cert(&own, &[], &name, &[], then) {
                Ok(_) => "trusted".to_owned(),
                Err(Error::InvalidCertificate(why)) => refusal(&why),
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(told(&trust, "localhost", 2050), "trusted");
        for (name, year, part) in [
            ("localhost", 2200, "has ended"),
            ("localhost", 2000, "doesn't count yet"),
            ("elsewhere", 2050, "is for another server"),
        ] {
            let words = told(&trust, name, year);
            assert!(words.contains(part), "{name} in {year}: {words}");
        }
        // Whoever doesn't name it doesn't trust in it.
        std::fs::write(&bundle, S3::authority()).unwrap();
        let other = Trust::read(Some(&bundle), provider).unwrap();
        assert!(told(&other, "localhost", 2050).contains("has signed itself"));
    }
}
