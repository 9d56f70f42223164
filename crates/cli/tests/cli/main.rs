//! The real program, run as users and scripts run it.

mod home;

mod backup;
mod bench;
mod bucket;
mod check;
mod copy;
mod documents;
mod forget;
mod golden;
mod history;
mod interrupt;
mod json;
mod keys;
mod kills;
mod look;
mod over;
mod owners;
mod pages;
mod parity;
mod places;
mod profiles;
mod prune;
mod pty;
mod remote;
mod repair;
mod report;
mod restore;
mod rules;
mod slips;
mod statuses;
mod storage;
mod terminal;
mod which;
mod why;
