//! The store over a real OpenSSH server: accounts with more and fewer rights, logins, and lines that break.

mod accounts;
mod lines;
mod logins;
mod place;
mod questions;
mod rclone;
