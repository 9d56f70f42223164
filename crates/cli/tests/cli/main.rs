//! The real program, run as users and scripts run it.

mod home;

mod backup;
mod interrupt;
mod json;
mod keys;
mod look;
mod pages;
mod places;
mod profiles;
mod restore;
mod statuses;
mod storage;
mod why;
