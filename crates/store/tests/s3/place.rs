//! Stores, and what they are told of their user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drumlin_store::{Error, Retries, S3Address, S3Store, Surroundings};
use drumlin_testkit::s3::{BUCKET, KEYS, S3};

/// A user of a server in this process.
pub struct User {
    pub around: Surroundings,
    pub told: Arc<Mutex<Vec<String>>>,
}

impl User {
    pub fn of(endpoint: &str, variables: &[(&str, &str)]) -> Self {
        let millis = Duration::from_millis;
        let told = Arc::new(Mutex::new(Vec::new()));
        let ears = told.clone();
        let aws: HashMap<_, _> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let around = Surroundings {
            endpoint: Some(endpoint.to_owned()),
            aws,
            retries: Retries { first: millis(5), longest: millis(50), give_up: millis(20_000) },
            tell: Some(Arc::new(move |words: &str| ears.lock().unwrap().push(words.to_owned()))),
            ..Surroundings::default()
        };
        User { around, told }
    }

    pub fn at(server: &S3) -> Self {
        Self::of(&server.endpoint(), &[("AWS_ACCESS_KEY_ID", KEYS.0), ("AWS_SECRET_ACCESS_KEY", KEYS.1)])
    }

    pub fn create(&self, prefix: &str) -> S3Store {
        self.create_in(BUCKET, prefix).unwrap_or_else(|e| panic!("{e}"))
    }

    pub fn create_in(&self, bucket: &str, prefix: &str) -> Result<S3Store, Error> {
        S3Store::create(&address(bucket, prefix), &self.around)
    }

    pub fn open(&self, prefix: &str) -> S3Store {
        S3Store::open(&address(BUCKET, prefix), &self.around).unwrap_or_else(|e| panic!("{e}"))
    }

    pub fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

pub fn address(bucket: &str, prefix: &str) -> S3Address {
    S3Address { endpoint: None, bucket: bucket.to_owned(), prefix: prefix.to_owned() }
}
