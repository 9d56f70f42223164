//! Stores in buckets: of a server in this process that misbehaves when it is told to, and of real ones.

mod conforms;
mod lines;
mod locks;
mod once;
mod past;
mod place;
mod proxies;
mod slips;
mod tls;
